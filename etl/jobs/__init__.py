"""Jobs: what runs in the Spark application of each operator?"""
