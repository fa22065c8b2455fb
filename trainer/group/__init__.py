"""The worker group: how do workers start, meet, report and restart?"""
