# Your own questions: .jsonl or .parquet in SQuAD's columns: question, context, answers {"text": [...],
# "answer_start": [...]}; empty lists where the context has no answer.
kind = "QA"
dataset = "questions"
data = "my_questions"
template = "{question}\n{context}"
