"""The same scripts played to Apache Kafka 4.3 and to Quorate, and every reply compared.

A script (`script.py`) is a list of steps of up to five clients of one group, generated from a seed
(`generating.py`, `disorder.py`). It names no member epoch and no topic id: each side's client model
(`side.py`, `hearing.py`) fills in what *its* server said, so the two sides may number epochs and topics as
they like.
Members of the classic protocol (`classic_requests.py`, `classic_generating.py`) wait for each other, so their
replies may come with a later step (`classic_steps.py`).
`play.py` plays a script to both sides step by step; `compare.py` compares the replies field by field, after
mapping ids and epochs; `settled.py` judges assignments that hang on ties; `accepted.py` holds the differences
that are known and wanted, each a predicate with a count and a row in docs/proofs/conformance.md. Whatever
else differs is a defect: `minimise.py` shortens its script, which then goes to `regressions/`.
"""
