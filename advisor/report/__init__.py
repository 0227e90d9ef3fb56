"""Views of a findings report: terminal, HTML, JSON, JUnit, GitHub, Markdown."""
