"""Where a search keeps its study: a journal file on one machine, or a database that many machines reach.

A database learns from Optuna's heartbeats which workers are alive. A journal has no heartbeats: the worker of a trial
locks a file beside the journal instead, and the operating system releases the lock however the process ends.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rrnn.errors import RunError
from rrnn.tasks.workers import lock_file

if TYPE_CHECKING:
    from optuna import Trial
    from optuna.storages import BaseStorage, RDBStorage
    from optuna.trial import FrozenTrial
    from sqlalchemy import URL

CONNECT_SECONDS = 10
START_SECONDS = 60.0  # a worker surely locks its trial's file within this time
_WRITE_SECONDS = 0.5  # another process surely locks a file that it has created within this time
_ADVISORY_LOCK = 0x72726E6E  # PostgreSQL's locks have numbers


def is_database(where: str) -> bool:
    return "://" in where


@contextmanager
def open_storage(
    where: str, heartbeat_seconds: int, grace_seconds: int
) -> Iterator[tuple[BaseStorage, ExitStack]]:
    """Open the journal or database, or create it. Errors of the database are raised as RunError.

    Yield it together with a lock that is held until the caller leaves it, so that one process at a time sets up the
    study. (PostgreSQL has such a lock, and so have, on POSIX, journals and SQLite. MySQL has none.)
    """
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    with ExitStack() as everything, ExitStack() as lock:
        if is_database(where):
            url = _parse_url(where)
            everything.enter_context(_clear_errors(url))
            if url.get_backend_name() == "sqlite" and url.database and os.name == "posix":
                # Not the database itself: closing it would release SQLite's own locks.
                with suppress(OSError):  # the database then says what is wrong with the folder
                    lock_file(lock.enter_context(open(f"{url.database}.lock", "a")), wait=True)
            storage = _connect(url, heartbeat_seconds, grace_seconds, lock)
            everything.callback(storage.engine.dispose)
            yield storage, lock
        else:
            Path(where).parent.mkdir(parents=True, exist_ok=True)
            file = lock.enter_context(open(where, "a"))
            if os.name == "posix":  # Windows would keep others from reading
                lock_file(file, wait=True)
            _check_journal(Path(where))
            yield JournalStorage(JournalFileBackend(where)), lock


# ---- databases -------------------------------------------------------------------------------------------------------


def _parse_url(where: str) -> URL:
    import sqlalchemy

    try:
        url = sqlalchemy.make_url(where)
    except Exception:  # its message may contain the password
        url = None
    # An @ in the host or the database is the rest of a password whose special characters are not encoded.
    if url is None or (url.get_backend_name() != "sqlite" and "@" in f"{url.host}{url.database}"):
        raise RunError(
            "the storage is not a valid database URL. Write postgresql://user:password@host:port/database, with "
            "special characters in the password percent-encoded (@ is %40, / is %2F, : is %3A)"
        )
    return url.set(drivername="postgresql") if url.drivername == "postgres" else url


def _connect(url: URL, heartbeat_seconds: int, grace_seconds: int, lock: ExitStack) -> RDBStorage:
    """Connect to the database, take the lock, and create Optuna's tables unless they exist."""
    import sqlalchemy
    from optuna.exceptions import StorageInternalError
    from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
    from sqlalchemy import event
    from sqlalchemy.exc import SQLAlchemyError

    is_postgresql, is_sqlite = (url.get_backend_name() == name for name in ("postgresql", "sqlite"))
    if url.drivername == "postgresql":  # SQLAlchemy's default driver depends on its version
        url = url.set(drivername="postgresql+psycopg")
    defaults: dict[str, Any] = {}
    if is_postgresql:  # without an encoding, it may answer in bytes
        defaults = {"connect_timeout": CONNECT_SECONDS, "client_encoding": "utf8"}
    elif is_sqlite:  # the driver begins no transactions of its own: see below
        defaults = {"isolation_level": None, "timeout": START_SECONDS}
    arguments = {
        "pool_pre_ping": True,  # trials last longer than idle connections
        "connect_args": {key: value for key, value in defaults.items() if key not in url.query},
    }
    engine = sqlalchemy.create_engine(url, **arguments)
    lock.callback(engine.dispose)
    transaction = lock.enter_context(engine.begin())
    if is_postgresql:
        transaction.execute(sqlalchemy.text(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})"))
    for attempt in range(10):
        try:
            storage = RDBStorage(
                url.render_as_string(hide_password=False),
                engine_kwargs=arguments,
                heartbeat_interval=heartbeat_seconds,
                grace_period=grace_seconds,
                heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(),
            )
            if is_sqlite:
                # SQLite has no SELECT … FOR UPDATE, with which Optuna takes a waiting trial. Without a lock from the
                # beginning of the transaction, two workers could take the same trial.
                event.listen(
                    storage.engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE")
                )
            return storage
        except RuntimeError as error:  # another version of Optuna created the tables
            raise RunError(str(error)) from None
        except (SQLAlchemyError, StorageInternalError):
            # Without a lock, another process may be creating the tables at this moment.
            if is_postgresql or attempt == 9:
                raise
            time.sleep(_WRITE_SECONDS)
    raise AssertionError("not reached")


@contextmanager
def _clear_errors(url: URL) -> Iterator[None]:
    """Raise the database's errors as RunError, without the password."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    shown = url.set(query={}).render_as_string(hide_password=True)
    try:
        yield
    except ImportError as error:
        package = "'rrnn[postgresql]'" if url.get_backend_name() == "postgresql" else error.name
        raise RunError(f"the database {shown} needs the driver {error.name}: pip install {package}") from None
    except (SQLAlchemyError, StorageInternalError) as error:
        cause = error.__cause__ if isinstance(error, StorageInternalError) else error
        reason = " ".join(str(getattr(cause, "orig", None) or cause).split()).rstrip(".?")
        for secret in (url.password, *(value for key, value in url.query.items() if "pass" in key)):
            reason = reason.replace(str(secret), "***") if secret else reason
        raise RunError(
            f"the database {shown} cannot be used: {reason}. Check that its server is running and reachable, and the "
            "URL's host, port, user, password and database"
        ) from None


# ---- journals --------------------------------------------------------------------------------------------------------


def _check_journal(path: Path) -> None:
    """Raise an error if a line is cut off, by a full disk or a loss of power: it would spoil what is written next."""
    from optuna.storages.journal import JournalFileSymlinkLock

    lock = JournalFileSymlinkLock(str(path))  # with which Optuna writes
    lock.acquire()
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    finally:
        lock.release()
    for number, line in enumerate(lines, start=1):
        with suppress(ValueError):
            if line.endswith(b"\n") and json.loads(line):
                continue
        raise RunError(
            f"{path}:{number}: the study's journal is damaged from here on. Delete this line and all that follow, and "
            "search again: the trials that they recorded are repeated"
        )


@contextmanager
def show_alive(where: str, trial: Trial) -> Iterator[None]:
    """Lock the trial's file beside the journal, and remove it in the end. (A database has heartbeats.)"""
    if is_database(where):
        yield
        return
    path = _lock_path(where, trial)
    try:
        with path.open("a") as file:
            lock_file(file, wait=True)
            yield
    finally:
        with suppress(OSError):
            path.unlink()


def is_abandoned(where: str, trial: FrozenTrial) -> bool:
    """Return whether the worker of a journal's running trial has died. Then remove the file that it had locked."""
    path, begun = _lock_path(where, trial), trial.datetime_start
    try:
        with path.open("r+") as file:
            # A worker that has just created the file may be about to lock it.
            if not lock_file(file) or time.time() - path.stat().st_mtime < _WRITE_SECONDS:
                return False
    except FileNotFoundError:  # the worker has not come so far, or never will
        return begun is None or (datetime.now() - begun).total_seconds() > START_SECONDS
    path.unlink(missing_ok=True)
    return True


def _lock_path(where: str, trial: Trial | FrozenTrial) -> Path:
    return Path(f"{where}.trial-{trial._trial_id}")  # several studies may share a journal
