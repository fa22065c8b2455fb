"""Jobs: how does an operator become one Spark application?"""
