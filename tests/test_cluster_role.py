"""What a process learns of its role in a cluster from TF_CONFIG, and what it refuses."""
import socket
import threading

import pytest

from clrec_tf.config import ClusterConfig
from clrec_tf.errors import ClusterError
from clrec_tf.errors import UserError
from clrec_tf.training.cluster.local_roles import free_addresses
from clrec_tf.training.cluster import roles
from clrec_tf.training.cluster.roles import task_from_environment
from clrec_tf.training.monitoring.exporter import NoMetrics
from tests.local_cluster import LocalCluster


@pytest.mark.parametrize("text, words", [
    ("{", "cannot be read"), ('{"cluster": {}}', "cannot be read"), ('{"cluster": [], "task": {}}', "cannot be read"),
    ('{"cluster": {"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}, "task": {"type": "master", "index": 0}}',
     "task type 'master': choose from chief, worker, ps, evaluator"),
    ('{"cluster": {"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}, "task": {"type": "worker", "index": 1}}',
     "the task worker 1 does not exist"),
    ('{"cluster": {"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}, "task": {"type": "ps", "index": -1}}',
     "the task ps -1 does not exist"),
    ('{"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": "chief", "index": 0}}',
     "needs one chief, and at least one worker and one ps"),
    ('{"cluster": {"chief": ["a:1", "a:2"], "worker": ["b:1"], "ps": ["c:1"]}, "task": {"type": "chief", "index": 0}}',
     "needs one chief"),
    *((f'{{"cluster": {{"chief": ["a:1"], "worker": ["{address}"], "ps": ["c:1"]}}, "task": {{"type": "{role}", '
       f'"index": {index}}}}}', words) for address, role, index, words in [
           ("b:1", "worker", "0.9", "index 0.9 is no whole number"),
           ("b:1", "worker", "Infinity", "index inf is no whole number"),
           ("b:1", "worker", "true", "index True is no whole number"),
           ("b:1", "evaluator", "1", "the task evaluator 1 does not exist"),
           ("b:1,b:2", "worker", "0", "the address 'b:1,b:2': it must be host:port"),
           ("http://b:1", "worker", "0", "the address 'http://b:1': it must be host:port"),
           ("fe80::1", "worker", "0", "the address 'fe80::1': it must be host:port, as in"),
           ("b:١", "worker", "0", "the address 'b:١'"), ("A:01", "worker", "0", "an address twice")]),
])
def test_a_tf_config_that_says_no_cluster_is_refused(monkeypatch, text, words):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(UserError, match="^TF_CONFIG") as caught:
        task_from_environment()
    assert words in str(caught.value)


@pytest.mark.parametrize("address", ["[::1]:2222", "[fe80::1%eth0]:1", "my_host.clrec-0:65535"])
def test_an_index_may_be_text_and_an_address_of_either_kind(monkeypatch, address):
    monkeypatch.setenv("TF_CONFIG", f'{{"cluster": {{"chief": ["a:1"], "worker": ["{address}"], "ps": ["c:1"]}}, '
                                    '"task": {"type": "worker", "index": "0"}}')
    assert task_from_environment() == roles.Task("worker", 0, {"chief": ["a:1"], "worker": [address], "ps": ["c:1"]})


@pytest.mark.cluster
def test_a_bad_tf_config_ends_the_command_with_the_code_of_bad_input(tmp_path):
    with LocalCluster(tmp_path / "logs", dict(data_dir=tmp_path / "data", workdir=tmp_path / "run")) as roles:
        assert roles.chief(environ={"TF_CONFIG": "{"}) == 2
        assert roles.log("chief").split("error: ")[-1].startswith("TF_CONFIG={ cannot be read")


def test_a_chief_that_never_comes_is_not_waited_for_for_ever():
    address = free_addresses(1, 1)["chief"][0]
    with pytest.raises(ClusterError, match=f"the chief at {address} was never there in --chief_deadline_s=0.2"):
        roles._until_chief_is_gone(address, ClusterConfig(chief_deadline_s=0.2), threading.Event(), NoMetrics())
    with socket.create_server(("127.0.0.1", 0)) as chief:  # one that was there is another matter
        ending = threading.Timer(0.6, chief.close)
        ending.start()
        roles._until_chief_is_gone("127.0.0.1:%d" % chief.getsockname()[1], ClusterConfig(
            chief_deadline_s=0.2, chief_gone_s=0.2), threading.Event(), NoMetrics())
        ending.join()
