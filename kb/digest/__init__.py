"""The weekly digest: figures over the incidents of a week, each with a definition and with the number it was counted over."""
