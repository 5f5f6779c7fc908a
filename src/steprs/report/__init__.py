"""Tables, figures and pages, remade from folders alone. Never imports torch.

`python -m steprs.report DIR` writes the report of a folder that holds a `manifest.json`.
"""
