"""A vision-language model judges whether a task was done and whether each action was possible: for phones without
ground truth, and for comparison with it.

question.py    the question about a task, and its answer; pure
validity.py    the question about an action, and its answer; pure
marks.py       draws an action's touch on its screenshot; pure
vlm.py         the judge: question in, verdict out, each asked once
truth.py       a judge against ground truth: a confusion matrix; pure

The endpoint's client is in chat/.
"""
