"""How are files of local disks, HDFS and object stores read, and written in one step?"""
