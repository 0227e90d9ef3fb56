"""Long-running mutation tests of readers of untrusted input."""
