"""The weekly digest: figures over the incidents of a week, each with a definition and its number of cases."""
