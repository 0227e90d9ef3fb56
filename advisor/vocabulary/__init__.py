"""The field's words and units: operations, element types, bus factors. Imports nothing of ours."""
