"""Writes records with another's producer: produce.py SERVERS TOPIC CODEC TEXT…"""

import sys

from confluent_kafka import Producer

servers, topic, codec, *texts = sys.argv[1:]
producer = Producer({"bootstrap.servers": servers, "compression.type": codec, "linger.ms": 200})
failures = []
for text in texts:
    # Long enough that it is smaller when compressed: otherwise it is sent as it is.
    producer.produce(
        topic,
        (text + " " * 500).encode(),
        partition=0,
        on_delivery=lambda error, _: failures.append(str(error)) if error else None,
    )
if producer.flush(20) or failures:
    sys.exit("not all was written: " + "; ".join(failures))
