"""Whether a task was done and each action could be done, in the opinion of a vision-language model: for phones that do
not say, and beside those that do.

question.py    what is asked of a task, and how an answer is read; pure
validity.py    what is asked of an action, and how an answer is read; pure
marks.py       what an action touched, drawn on its screenshot; pure
vlm.py         the judge: question in, verdict out, each asked once
truth.py       a judge against ground truth: a confusion matrix; pure

The endpoint that it asks is the chat room's.
"""
