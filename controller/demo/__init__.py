"""`steelyard demo`: real requests, through a real proxy process, to four small backend processes on loopback.

Belongs here: what a newcomer is shown in the first minute. It uses the proxy as anyone would: by a file, by its ports
and by its admin pages; nothing of the proxy runs in this process.
"""
