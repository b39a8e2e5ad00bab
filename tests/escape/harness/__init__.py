"""The machinery that runs the escape corpus. Start at run.py; model.py says what an attack is."""
