"""What lasts: the database, its tables and queries, and how an older one is led here.
May import record, homecoming."""
