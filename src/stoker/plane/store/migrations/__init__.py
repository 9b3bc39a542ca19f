"""The ways from an older database to the present one. Run by plane/store/database.py, never by hand."""
