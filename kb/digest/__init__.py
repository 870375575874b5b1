"""The weekly digest: figures over the incidents of a week, each with a definition and the number of cases behind it."""
