"""Simulated phones: a pure reducer and its drawing (machine), behind the device's end of adb (adbd, serve).

Vocabulary: an *element* is something drawn at a place; a *target* names what a tap on it does; a *screen* is
"app/name"; an *event* is what the input system saw.
"""
