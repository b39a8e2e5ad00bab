/*
 * Calls no ordinary program needs and many a kernel bug needed. Each is made
 * with arguments that the kernel would reject after its own permission check,
 * so that probing has no effect even where nothing stops it: what it answers
 * without a sandbox stands in the manifest, and is the positive control.
 */
#include "attack.h"

#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <sys/time.h>
#include <sys/timex.h>

/* Numbers that are the same on every architecture, for old headers. */
#ifndef SYS_process_mrelease
#define SYS_process_mrelease 448
#endif
#ifndef SYS_quotactl_fd
#define SYS_quotactl_fd 443
#endif
#ifndef SYS_lookup_dcookie
#define SYS_lookup_dcookie -1
#endif
#ifndef SYS_iopl
#define SYS_iopl -1
#endif
#ifndef SYS_ioperm
#define SYS_ioperm -1
#endif
#ifndef SYS_modify_ldt
#define SYS_modify_ldt -1
#endif
#ifndef SYS_kexec_file_load
#define SYS_kexec_file_load -1
#endif
#ifndef SYS_nfsservctl
#define SYS_nfsservctl -1
#endif
#ifndef SYS_vhangup
#define SYS_vhangup -1
#endif

#define NOWHERE ((long)1) /* a pointer that faults */

struct probe {
    const char *name;
    long nr;
    long args[6];
};

static const struct probe probes[] = {
    {"kexec_load", SYS_kexec_load, {0, 0x7fffffff, NOWHERE, 0}},
    {"kexec_file_load", SYS_kexec_file_load, {-1, -1, 0, NOWHERE, 0}},
    {"init_module", SYS_init_module, {NOWHERE, 0, NOWHERE}},
    {"finit_module", SYS_finit_module, {-1, NOWHERE, 0}},
    {"delete_module", SYS_delete_module, {NOWHERE, 0}},
    {"swapon", SYS_swapon, {NOWHERE, 0}},
    {"swapoff", SYS_swapoff, {NOWHERE}},
    /* The two magic numbers are wrong: never restarts anything. */
    {"reboot", SYS_reboot, {0, 0, 0, 0}},
    {"settimeofday", SYS_settimeofday, {NOWHERE, 0}},
    {"clock_settime", SYS_clock_settime, {0, NOWHERE}},
    {"acct", SYS_acct, {NOWHERE}},
    {"quotactl", SYS_quotactl, {0x800007L << 8, NOWHERE, 0, NOWHERE}},
    {"quotactl_fd", SYS_quotactl_fd, {-1, 0x800007L << 8, 0, NOWHERE}},
    {"syslog", SYS_syslog, {3 /* read all */, NOWHERE, 16}},
    {"lookup_dcookie", SYS_lookup_dcookie, {0, NOWHERE, 16}},
    {"nfsservctl", SYS_nfsservctl, {0, 0, 0}},
    {"iopl", SYS_iopl, {4}},
    {"ioperm", SYS_ioperm, {0x10000, 1, 1}},
    {"modify_ldt", SYS_modify_ldt, {1, NOWHERE, 1}},
    /* Flags no kernel knows: permission first, then EINVAL. */
    {"fanotify_init", SYS_fanotify_init, {0x40000000, 0}},
    {"userfaultfd", SYS_userfaultfd, {0x40000000}},
    {"name_to_handle_at", SYS_name_to_handle_at, {-1, NOWHERE, NOWHERE, NOWHERE, 0}},
    {"open_by_handle_at", SYS_open_by_handle_at, {-1, NOWHERE, 0}},
    {"io_uring_setup", SYS_io_uring_setup, {1, NOWHERE}},
    {"io_uring_enter", SYS_io_uring_enter, {-1, 0, 0, 0, 0}},
    {"io_uring_register", SYS_io_uring_register, {-1, 0, 0, 0}},
    {"add_key", SYS_add_key, {NOWHERE, NOWHERE, 0, 0, 0}},
    {"request_key", SYS_request_key, {NOWHERE, NOWHERE, 0, 0}},
    /* KEYCTL_GET_KEYRING_ID of the session's keyring, not making one. */
    {"keyctl", SYS_keyctl, {0, -3, 1, 0, 0}},
    {"process_madvise", SYS_process_madvise, {-1, NOWHERE, 1, 4, 0}},
    {"process_mrelease", SYS_process_mrelease, {-1, 0}},
    {"migrate_pages", SYS_migrate_pages, {0x7ffffff0, 8, NOWHERE, NOWHERE}},
    {"move_pages", SYS_move_pages, {0x7ffffff0, 1, NOWHERE, 0, NOWHERE, 0}},
    {"setdomainname", SYS_setdomainname, {NOWHERE, 4}},
    {"vhangup", SYS_vhangup, {0}},
};

/* syscall NAME: one of the above. */
ATTACK(syscall)
{
    const char *name = operand(argc, argv, 1);

    for (size_t i = 0; i < sizeof probes / sizeof *probes; i++) {
        const struct probe *p = &probes[i];

        if (strcmp(p->name, name))
            continue;
        if (p->nr < 0) {
            errno = ENOSYS;
            refused("%s: not on this architecture", name);
        } else
            attempt(syscall(p->nr, p->args[0], p->args[1], p->args[2], p->args[3], p->args[4],
                            p->args[5]),
                    "%s", name);
        return;
    }
    broken("no such call in the table: %s", name);
}

/* bpf: a socket filter of two instructions, which is allowed to anyone on some kernels. */
ATTACK(bpf)
{
    struct bpf_insn code[2] = {{.code = 0xb7}, {.code = 0x95}};
    union bpf_attr attr;

    memset(&attr, 0, sizeof attr);
    attr.prog_type = BPF_PROG_TYPE_SOCKET_FILTER;
    attr.insn_cnt = 2;
    attr.insns = (uintptr_t)code;
    attr.license = (uintptr_t) "GPL";
    attempt(syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof attr), "bpf program");
}

ATTACK(bpf_map)
{
    union bpf_attr attr;

    memset(&attr, 0, sizeof attr);
    attr.map_type = BPF_MAP_TYPE_ARRAY;
    attr.key_size = attr.value_size = 4;
    attr.max_entries = 1;
    attempt(syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof attr), "bpf map");
}

/* perf: counts one's own instructions; the interface, not the data, is the danger. */
ATTACK(perf)
{
    struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE,
                                   .size = sizeof attr,
                                   .config = PERF_COUNT_SW_TASK_CLOCK,
                                   .exclude_kernel = 1};

    attempt(syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0), "perf_event_open");
}

/* userfaultfd, user mode only: open to everyone by default, loved by heap exploits. */
ATTACK(userfaultfd)
{
    attempt(syscall(SYS_userfaultfd, 1 /* UFFD_USER_MODE_ONLY */ | O_CLOEXEC), "userfaultfd");
}

/* io_uring: a ring whose operations no seccomp filter sees (codex PR 10814). */
ATTACK(io_uring)
{
    char params[120] = {0};

    attempt(syscall(SYS_io_uring_setup, 4, params), "io_uring ring");
}

/* adjtimex with a mode set; the frequency is put back as it was. */
ATTACK(adjtimex)
{
    struct timex now = {0};

    if (adjtimex(&now) < 0) {
        refused("adjtimex, to read");
        return;
    }
    now.modes = ADJ_FREQUENCY;
    attempt(syscall(SYS_adjtimex, &now), "adjtimex");
    now.modes = ADJ_FREQUENCY;
    attempt(syscall(SYS_clock_adjtime, 0, &now), "clock_adjtime");
}

/* sethostname NAME, and whether it took. */
ATTACK(sethostname)
{
    const char *name = operand(argc, argv, 1);

    attempt(sethostname(name, strlen(name)), "sethostname %s", name);
}

/* personality: no address randomisation, or READ_IMPLIES_EXEC, for the next program. */
ATTACK(personality)
{
    attempt(syscall(SYS_personality, 0x0040000), "personality ADDR_NO_RANDOMIZE");
    attempt(syscall(SYS_personality, 0x0400000), "personality READ_IMPLIES_EXEC");
}

/* kernel_log: the ring buffer, by the device. */
ATTACK(kernel_log)
{
    char text[8192];
    int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);

    attempt(fd < 0 ? -1 : read(fd, text, sizeof text), "read the kernel log");
}
