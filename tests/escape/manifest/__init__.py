"""The corpus: every attack, by category. Ids are unique; tests/escape/README.md says how to add one."""

from . import (filesystem_deny, filesystem_links, filesystem_metadata, filesystem_paths,
               filesystem_proc, ipc, ipc_process, kernel_calls, kernel_namespaces,
               kernel_privilege, lifecycle, network, network_filter, network_ports, writeback_agents, writeback_git,
               writeback_hidden, writeback_home, writeback_index)

ALL = (
    *filesystem_paths.ATTACKS, *filesystem_links.ATTACKS, *filesystem_deny.ATTACKS,
    *filesystem_metadata.ATTACKS, *filesystem_proc.ATTACKS,
    *writeback_git.ATTACKS, *writeback_hidden.ATTACKS, *writeback_agents.ATTACKS, *writeback_home.ATTACKS,
    *writeback_index.ATTACKS,
    *ipc.ATTACKS, *ipc_process.ATTACKS,
    *kernel_namespaces.ATTACKS, *kernel_calls.ATTACKS, *kernel_privilege.ATTACKS,
    *lifecycle.ATTACKS,
    *network.ATTACKS,
    *network_filter.ATTACKS,
    *network_ports.ATTACKS,
)

assert len({a.id for a in ALL}) == len(ALL), "two attacks have the same id"
