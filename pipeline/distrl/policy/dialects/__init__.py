"""The text forms of actions that vision-language models were trained on: pure print and parse."""
