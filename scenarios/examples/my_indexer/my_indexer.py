#!/usr/bin/env python3
"""Indexes KV events and compares itself with the truth: my_indexer.py ENDPOINT TRUTH [REPLAY_ENDPOINT]"""
import json
import sys
from collections import Counter

import msgpack
import zmq

PLACES = {"BlockStored": (1, 6, 9), "BlockRemoved": (1, 2, 3), "AllBlocksCleared": ()}  # of an array, to 0.23


class Held(Counter):
    """The number of blocks that carry (group, medium, hash), if any."""

    def change(self, group, medium, hashes, by):
        for block_hash in hashes:
            is_integer = isinstance(block_hash, int)
            key = (group or 0, medium or "GPU", block_hash.to_bytes(8, "big") if is_integer else block_hash)
            self[key] += by
            if self[key] == 0:
                del self[key]

    def apply(self, payload):
        for event in msgpack.unpackb(payload)[1]:
            if isinstance(event, list):
                values = [event[at] if at < len(event) else None for at in PLACES[event[0]]]
                event = dict(zip(("block_hashes", "medium", "group_idx"), values), type=event[0])
            if event["type"] == "AllBlocksCleared":
                self.clear()
            by = 1 if event["type"] == "BlockStored" else -1
            self.change(event.get("group_idx"), event.get("medium"), event.get("block_hashes", ()), by)


def truth_of(file, truth):
    """Given a number by send(), advances the truth to that message; yields whether it was the last one."""
    sequence, text = (yield), ""
    while True:
        text += file.readline()
        if not text.endswith("\n"):  # not written yet, and so of a later message
            sequence = yield False
            continue
        line, text = json.loads(text), ""
        while line.get("sequence", sequence + 1) > sequence:
            sequence = yield line.get("end") == sequence + 1
        truth.change(line["group"], line["medium"], map(bytes.fromhex, line["added"]), 1)
        truth.change(line["group"], line["medium"], map(bytes.fromhex, line["removed"]), -1)


def main(endpoint, truth_file, replay_endpoint=None):
    held, truth, expected, idle = Held(), Held(), 0, 0
    truth_at = truth_of(open(truth_file, encoding="utf-8"), truth)
    truth_at.send(None)
    subscriber, replay = [zmq.Context.instance().socket(kind) for kind in (zmq.SUB, zmq.DEALER)]
    subscriber.connect(endpoint)
    subscriber.subscribe(b"")
    if replay_endpoint:
        replay.connect(replay_endpoint)
    while (idle := idle + 1) < 300:
        if subscriber.poll(100):
            messages, idle = [subscriber.recv_multipart()], 0
            if replay_endpoint and int.from_bytes(messages[0][-2], "big") > expected:
                replay.send_multipart([b"", expected.to_bytes(8, "big")])
                while (message := replay.recv_multipart())[-1]:  # to one without a payload
                    messages.append(message)
            for *_, number, payload in sorted(messages, key=lambda message: message[-2]):
                if (number := int.from_bytes(number, "big")) >= expected:  # else it is a repetition
                    held.apply(payload)
                    expected = number + 1
        is_last = truth_at.send(expected - 1)
        if dict.__ne__(held, truth):
            return f"after message {expected - 1}: too much {held - truth}, missing {truth - held}"
        if is_last:
            return print(f"equal to the truth after each of {expected} messages")
    return 2


sys.exit(main(*sys.argv[1:]))
