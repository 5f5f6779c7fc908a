"""The loop and what it stands on: one update after another, each record in and one record out."""
