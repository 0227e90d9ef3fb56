"""One module (or package) per format; ``advisor.ingest.detect`` finds them by name."""
