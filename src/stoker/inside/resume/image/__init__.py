"""image: what a life looks like at one line of its script.

It answers for the place where an image is taken (points), for taking and choosing one (images, codec, census;
core/store has the files on the disk), for putting it back (restore), for whether a life is the recorded one
(checks), for what refuses an image (unsupported, foreseen), and for how a recorded life ends (ending).
It imports all rooms but audit.
"""
