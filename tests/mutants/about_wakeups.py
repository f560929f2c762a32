"""Rules about how a process learns of what others did: a sleeper that is not woken looks like one that works.

Here the bugs are in the Python around each engine, and the tests are those of sleepers in one process and somebody who
acts in another.
"""

from __future__ import annotations

from .rule import Rule, beside, sql


def reacts(deed: str) -> str:
    return f"test_a_sleeper_reacts_at_once_when[{deed}]"


CUT = "test_sleepers_react_at_once_after_their_channel_was_cut"
FOUND_BY_LOOKING = "test_a_message_that_is_lost_is_found_by_looking"
TOO_EARLY = "test_a_job_whose_adder_looked_too_early_is_found_when_it_is_committed"

RULES = [
    # what arrives
    Rule(
        "a notification that arrives wakes whom it is for",
        (reacts("a_job_arrives"),),
        sqlite=beside("sqlite/listening", "self._take(messages)\n", "pass\n", times=2),
        sql=beside("postgres/listening", "            self._ears.hear(words)\n", "            pass\n"),
        lua=beside(
            "redis/listeners",
            "                            self._heard(found[1])\n",
            "                            pass\n",
        ),
    ),
    Rule(
        "a notification about any of its queues wakes a sleeper",
        ("test_an_ear_for_several_queues_hears_each",),
        python=beside(
            "steps/sleepers",
            "        for queue in listener.queues:\n            self._by_queue.setdefault",
            "        for queue in listener.queues[:1]:\n            self._by_queue.setdefault",
        ),
        sql=beside("postgres/ears", "(name in ear.queues and", "(name in ear.queues[:1] and"),
        lua=beside(
            "redis/listeners",
            "                self._wake_where(lambda listener: word[1] in listener.queues)\n",
            "                self._wake_where(lambda listener: word[1] in listener.queues[:1])\n",
        ),
    ),
    Rule(
        "a notification about another queue wakes nobody",
        ("test_a_job_in_another_queue_wakes_nobody_here",),
        python=beside(
            "steps/sleepers",
            "        for listener in tuple(self._by_queue.get(queue, ())):\n            listener.wake()",
            "        for listener in tuple(self._all):\n            listener.wake()",
        ),
        sql=beside("postgres/ears", '(name in ear.queues and (what == "q"', '((what == "q"'),
    ),
    Rule(
        "a limit that opens wakes everybody",
        (reacts("an_operator_raises_a_limit"),),
        sqlite=beside("sqlite/notifications", "        sleepers.wake_all()\n        return\n", "        return\n"),
        sql=beside("postgres/ears", "elif what == ALL or (name", "elif (name"),
        lua=beside("redis/listeners", "self._wake_where(lambda listener: True)", "pass"),
    ),
    Rule(
        "a cancel makes the worker that runs the job look",
        (reacts("an_active_job_is_cancelled"),),
        sqlite=beside("sqlite/notifications", "        sleepers.ask_heartbeat(worker)\n", "        pass\n"),
        sql=beside("postgres/ears", "                        ear.heartbeat_due = True\n", ""),
        lua=beside(
            "redis/listeners",
            "                        listener.heartbeat_due = True\n",
            "                        pass\n",
        ),
    ),
    Rule(
        "the end of a job wakes whoever waits for it",
        (reacts("the_result_of_a_job_is_written"),),
        sqlite=beside("sqlite/listening", "        if ended:\n", "        if not ended:\n"),
        sql=beside(
            "postgres/ears",
            "                    ear.wake()\n                continue\n",
            "                    pass\n                continue\n",
        ),
        lua=beside(
            "redis/listeners",
            "            self._waiters.heard(said)\n            return\n",
            "            return\n",
        ),
    ),
    Rule(
        "the end of the last job wakes whoever waits for an empty queue",
        (
            reacts("the_last_job_ends_where_a_worker_waits_for_an_empty_queue"),
            "test_whoever_wants_to_know_hears_that_the_last_job_of_a_queue_ended",
        ),
        sqlite=beside("sqlite/notifications", "        sleepers.emptied(queue)\n", "        pass\n"),
        sql=beside("postgres/ears", '(what == "q" or ear.wants_empty)', 'what == "q"'),
        lua=beside("redis/listeners", "listener.wants_empty and word[1] in listener.queues)", "False)"),
    ),
    Rule(
        "whoever listens goes on after a message that is not ours",
        (
            "test_strange_messages_are_ignored",
            "test_strange_notifications_are_ignored",
            "test_strange_words_are_ignored",
        ),
        sqlite=beside(
            "sqlite/listening",
            "                # Whoever sent this is not one of us.\n                continue\n",
            "                self._stop.set()\n                return\n",
        ),
        sql=beside(
            "postgres/listening",
            "            # Whoever sent this is not one of us.\n            return\n",
            "            self._stop.set()\n            return\n",
        ),
        lua=beside(
            "redis/listeners",
            '                    log.exception("listening to %s failed; retrying", self._client.shown)\n',
            "                    return\n",
        ),
    ),
    # when it is sent, and to whom
    Rule(
        "others are notified of what is written, not before",
        ("test_others_are_notified_once_it_is_written",),
        sqlite=beside(
            "sqlite/writer",
            '            written = unit.end()\n            db.execute("COMMIT")\n',
            '            written = unit.end()\n            self._written()\n            db.execute("COMMIT")\n',
        ),
    ),
    Rule(
        "who listens is registered with those who write",
        (reacts("a_job_arrives"),),
        sqlite=beside(
            "sqlite/listening",
            'unit.db.execute(SPACE["add_listener"], (address, unit.space, waits))',
            'SPACE["add_listener"]',
        ),
        sql=beside(
            "postgres/listening",
            "self._wants_empty, asleep, SAID_FOR)",
            "self._wants_empty, False, SAID_FOR)",
        ),
    ),
    Rule(
        "who has a free slot again is registered again",
        (
            reacts("a_job_arrives_after_the_only_slot_was_taken_for_long"),
            "test_an_event_that_was_heard_can_be_heard_again",
        ),
        sql=beside("postgres/listening", "if (asleep and not self._asleep) or", "if"),
    ),
    Rule(
        "who waits for an end is registered for ends, also where others listened before",
        ("test_a_process_that_listens_already_hears_of_the_end_that_it_begins_to_wait_for",),
        sqlite=beside("sqlite/listening", "if new or (waits and not self._waits):", "if new:"),
    ),
    Rule(
        "a registration is renewed before it ends",
        ("test_who_sleeps_for_long_stays_registered", "test_a_sleeper_that_hears_nothing_for_long_stays_known"),
        sql=beside("postgres/listening", "if now - said_at > SAY_EVERY or (", "if ("),
        lua=beside("redis/listeners", "if self._loop.time() - self._renewed_at > RENEW:", "if False:"),
    ),
    # what may be missed
    Rule(
        "whoever was cut off is reached again",
        (CUT, "test_a_socket_that_somebody_removed_is_made_anew"),
        sqlite=beside("sqlite/listening", "            self._listen_again()\n", "            pass\n"),
        sql=beside(
            "postgres/listening",
            "        connection.execute(f'listen \"{self._names.tables}.wakeups\"')\n",
            "        if not self._lost:\n            connection.execute(f'listen \"{self._names.tables}.wakeups\"')\n",
        ),
        lua=beside(
            "redis/listeners",
            "                await asyncio.sleep(pause)\n                pause = min",
            "                await asyncio.Event().wait()\n                pause = min",
        ),
    ),
    Rule(
        "a listener whose connection breaks tries again",
        (CUT,),
        sql=beside("postgres/listening", "                self._retry(error)\n", "                break\n"),
        lua=beside(
            "redis/listeners",
            "                    self._client.outage.begins(error)\n                except Exception",
            "                    return\n                except Exception",
        ),
    ),
    Rule(
        "what nobody was notified of is found by looking",
        (
            FOUND_BY_LOOKING,
            TOO_EARLY,
            "test_an_end_that_nobody_was_notified_of_is_found",
        ),
        sqlite=beside(
            "sqlite/listening",
            "        if unnotified or found.replaced or dropped:\n            self._sleepers.wake_all()\n",
            "",
        ),
        sql=beside(
            "postgres/listening",
            "                self._ears.wake_all()\n            awake_since",
            "            awake_since",
        ),
        lua=beside("redis/waiters", "        if seen != self._seen:\n", "        if False:\n"),
    ),
    Rule(
        "a process looks by itself until every older transaction is over",
        (TOO_EARLY,),
        sql=beside("postgres/listening", ", oldest)) > known", ", oldest)) > 0"),
    ),
    Rule(
        "who was no longer registered looks again",
        ("test_who_stood_still_for_so_long_that_it_is_no_longer_registered_looks_again",),
        sql=sql("wake", "case when v_known then null", "case when true then null"),
    ),
    Rule(
        "what was missed is counted",
        (FOUND_BY_LOOKING, "test_an_end_that_nobody_was_notified_of_is_found"),
        sqlite=beside("sqlite/listening", "            self.missed += 1\n", ""),
        lua=beside("redis/waiters", "            self.insurance_wakeups += unheard\n", ""),
    ),
    Rule(
        "a worker that was woken and dies leaves its job to another",
        ("test_a_worker_that_dies_on_the_way_to_its_job_delays_it_by_a_moment",),
        lua=beside("redis/listeners", "if self._watching is None or self._watching.done():", "if False:"),
    ),
    Rule(
        "a worker that was woken and cannot claim passes the word on",
        ("test_a_word_that_a_worker_cannot_act_on_wakes_another",),
        lua=beside(
            "redis/listeners",
            "if self._claimed_at.get(queue, 0.0) < heard_at and self._listeners:",
            "if False:",
        ),
    ),
    Rule(
        "a server that lost its data learns who sleeps",
        ("test_workers_that_slept_are_woken_by_what_a_living_program_adds",),
        lua=beside(
            "redis/listeners",
            "                            await self._begin_anew(born)\n                        elif found",
            "                            pass\n                        elif found",
        ),
    ),
]
