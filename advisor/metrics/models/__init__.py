"""What measured times are held against: fits, theory, roofline, pipeline, the critical path."""
