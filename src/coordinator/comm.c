/* SPDX-License-Identifier: Apache-2.0 */
/* Making and freeing a communicator. */
#include "coordinator/comm.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/hook.h"
#include "base/log.h"
#include "base/text.h"
#include "health/agreement.h"

/* Spinning before sleeping. Where every rank has a processor: about two decode steps' skew. Where not, the processor is
 * better used by the rank that is waited for. */
#define SPIN_US_OWN_CPU    200u
#define SPIN_US_SHARED_CPU 2u

#define HOST_PLANE_BYTES 65536u

/* How long a communicator that graphs outlive waits for its eager calls to end. */
#define SETTLE_WAIT_MS 1000u
#define PAGE_BYTES     4096u

static uint32_t spin_us(int32_t ranks_here) {
    cpu_set_t cpus;
    if (sched_getaffinity(0, sizeof cpus, &cpus) != 0) return SPIN_US_SHARED_CPU;
    return CPU_COUNT(&cpus) >= ranks_here ? SPIN_US_OWN_CPU : SPIN_US_SHARED_CPU;
}

void tpc_comm_peer_ended(tpcomm_t *comm, int32_t world_rank, int32_t pid, tpc_peer_end_t how) {
    for (int32_t r = 0; r < comm->size; r++) {
        if (comm->ranks[r] != world_rank) continue;
        if (atomic_load(&comm->failure.slots[r].left) != 0 || atomic_load(&comm->finalized) != 0) return;
        char text[200];
        bool failed = how == TPC_PEER_FAILED || how == TPC_PEER_NO_ROOM;
        tpcomm_status_t status = how == TPC_PEER_LEFT     ? TPCOMM_ERR_ABORTED
                                 : how == TPC_PEER_FORGED ? TPCOMM_ERR_AUTH
                                 : failed                 ? TPCOMM_ERR_PEER_FAILED
                                                          : TPCOMM_ERR_PEER_DIED;
        snprintf(text, sizeof text, "rank %d (pid %d) %s without finalizing", r, pid,
                 how == TPC_PEER_LEFT ? "left" : "ended");
        if (how == TPC_PEER_FORGED)
            snprintf(
                text, sizeof text,
                "between rank %d and rank %d (pid %d) a control message was changed, repeated, left out or moved on "
                "the way",
                comm->rank, r, pid);
        int32_t from = how == TPC_PEER_FAILED ? r : comm->rank, to = how == TPC_PEER_FAILED ? comm->rank : r;
        if (failed) snprintf(text, sizeof text, "rank %d cannot go on with its connection to rank %d", from, to);
        tpc_failure_place_t place = {.rank = failed ? from : r};
        tpc_failure_raise(&comm->failure, status, place, text);
    }
}

/* ------------------------------------------------------------------ making */

static void wake_all(void *arg) {
    tpcomm_t *comm = arg;
    tpc_backend_set_wake(&comm->backends);
    if (comm->host_state != NULL) tpc_host_backend->wake(comm->host_state);
}

/* Which kind of device, from what every rank can: the same verdict everywhere. */
static tpcomm_status_t choose_kind(tpcomm_t *comm, tpcomm_device_kind_t asked, tpcomm_device_kind_t *kind_p) {
    int32_t usable = 0, without = 0, with = 0;
    for (int32_t r = 0; r < comm->size; r++) {
        usable += comm->devices[r].usable != 0;
        *(comm->devices[r].usable != 0 ? &with : &without) = r;
    }
    *kind_p = usable == 0 ? TPCOMM_DEVICE_CPU : TPCOMM_DEVICE_CUDA;
    if (usable == 0 && asked == TPCOMM_DEVICE_AUTO && comm->rank == 0)
        TPC_INFO("init", "device auto: the cpu device, for rank 0 has no usable GPU: %s", comm->devices[0].reason);
    if (usable == comm->size || (asked == TPCOMM_DEVICE_AUTO && usable == 0)) return TPCOMM_OK;
    if (asked == TPCOMM_DEVICE_CUDA)
        return tpc_error(TPCOMM_ERR_UNSUPPORTED, "device cuda was asked for, but rank %d cannot: %s", without,
                         comm->devices[without].reason);
    return tpc_error(
        TPCOMM_ERR_UNSUPPORTED,
        "device auto: rank %d has %s (%s), but rank %d has no usable GPU: %s; set TPCOMM_DEVICE to cpu, or give every "
        "rank a GPU",
        with, comm->devices[with].name, comm->devices[with].bus_id, without, comm->devices[without].reason);
}

/* Two ranks on one GPU, the lowest such; false: there are none. */
static bool find_shared(const tpcomm_t *comm, int32_t *a_p, int32_t *b_p) {
    for (int32_t r = 1; r < comm->size; r++)
        for (int32_t s = 0; s < r; s++) {
            if (memcmp(comm->devices[r].uuid, comm->devices[s].uuid, sizeof comm->devices[r].uuid) != 0) continue;
            *a_p = s;
            *b_p = r;
            return true;
        }
    return false;
}

static tpcomm_status_t check_duplicates(const tpcomm_t *comm) {
    int32_t a = 0, b = 0;
    if (comm->world->settings->share_device || !find_shared(comm, &a, &b)) return TPCOMM_OK;
    return tpc_error(TPCOMM_ERR_DUPLICATE_DEVICE,
                     "ranks %d and %d are both on %s (%s): set the device of each rank (cudaSetDevice(local rank), or "
                     "config.device), or ask for sharing (TPCOMM_SHARE_DEVICE=1, config.share_device)",
                     a, b, comm->devices[b].name, comm->devices[b].bus_id);
}

/* In tests alone: a GPU that is only said to be there, by its number. */
static void pretend(tpc_cuda_facts_t *facts) {
    uint64_t number = tpc_hook_value("pretended_gpu", 0);
    if (number == 0) return;
    *facts = (tpc_cuda_facts_t){.usable = 1, .uuid = {(uint8_t)number}, .name = "pretended GPU"};
    snprintf(facts->bus_id, sizeof facts->bus_id, "0000:%02x:00.0", (unsigned)(number & 0xFF));
}

/* Everything that is decided from what the ranks agreed on and told each other; the same verdict everywhere. */
static tpcomm_status_t decide_facts(tpcomm_t *comm, const tpc_team_t *team, const tpc_deadline_t *deadline) {
    const tpc_settings_t *settings = comm->world->settings;
    tpc_bootstrap_t *bootstrap = comm->world->bootstrap;
    tpcomm_device_kind_t kind = TPCOMM_DEVICE_CPU;
    tpcomm_status_t status = TPCOMM_OK;
    if (settings->device_kind != TPCOMM_DEVICE_CPU) {
        tpc_cuda_facts_t mine;
        tpc_cuda_probe(settings->config.device - 1, &mine);
        pretend(&mine);
        status =
            tpc_team_gather(bootstrap, team, "look at devices", TPCOMM_OK, &mine, sizeof mine, comm->devices, deadline);
        if (status == TPCOMM_OK) status = choose_kind(comm, settings->device_kind, &kind);
        if (status == TPCOMM_OK && kind == TPCOMM_DEVICE_CUDA) status = check_duplicates(comm);
        if (status != TPCOMM_OK) return status;
    }
    int32_t odd = 0;
    comm->agreed = (tpc_agreed_t){.size = comm->size,
                                  .device_kind = kind,
                                  .topology = tpc_topology_of_cpu_team(bootstrap, team, &odd),
                                  .deterministic = settings->deterministic,
                                  .nccl = settings->nccl,
                                  .forced_path = settings->forced_path,
                                  .workspace_bytes = settings->workspace_bytes,
                                  .peer_mem = settings->peer_mem};
    if (kind == TPCOMM_DEVICE_CUDA) {
        int32_t a = 0, b = 0;
        status = tpc_topology_of_gpu_team(bootstrap, team, comm->devices, settings->env.value[TPC_ENV_NVML_PATH].text,
                                          deadline, &comm->agreed.topology, comm->pairs);
        if (status != TPCOMM_OK) return status;
        comm->agreed.shares_device = find_shared(comm, &a, &b);
        if (tpc_comm_spans(comm)) comm->agreed.topology = TPC_TOPOLOGY_MULTI_HOST;
    }
    comm->check = settings->check;
    tpc_backend_set_choose(&comm->backends, &comm->agreed);
    /* A group of one takes its copy whatever is forced; one that spans hosts refuses calls, and its subgroups may not.
     */
    if (settings->forced_path == 0 || comm->size == 1 || tpc_comm_spans(comm)) return TPCOMM_OK;
    tpc_call_key_t key = {.coll = TPCOMM_ALL_REDUCE, .dtype = TPCOMM_F32, .op = TPCOMM_SUM};
    if (tpc_path_norms(settings->forced_path))
        key = (tpc_call_key_t){.coll = TPCOMM_ALL_REDUCE_RMS_NORM, .dtype = TPCOMM_F32, .op = TPCOMM_SUM, .hidden = 8};
    if (settings->forced_path == TPCOMM_PATH_UNFUSED) return TPCOMM_OK;
    const char *why_not = tpc_backend_set_why_not(&comm->backends, &comm->agreed, settings->forced_path, &key);
    if (why_not == NULL) return TPCOMM_OK;
    return tpc_error(TPCOMM_ERR_CONFIG,
                     "TPCOMM_PATH or config.path asks for %s, which group '%s' of %d ranks cannot take: %s",
                     tpcomm_path_name(settings->forced_path), comm->name, comm->size, why_not);
}

static tpcomm_status_t read_table(const tpcomm_t *comm, tpc_table_t *table) {
    tpc_table_world_t world = {.size = comm->size, .topology = tpc_topology_name(comm->agreed.topology)};
    for (int32_t r = 0; r < comm->size; r++)
        world.device[r] = comm->agreed.device_kind == TPCOMM_DEVICE_CUDA ? comm->devices[r].name : "cpu";
    return tpc_table_read(comm->world->settings->tuning_file, &world, table);
}

/* Once a world: rank 0 reads the tuning file, if any, and hands its rows to all. */
static tpcomm_status_t share_table(tpcomm_t *comm, const tpc_team_t *team, const tpc_deadline_t *deadline) {
    tpc_table_t *table = malloc(sizeof *table);
    comm->world->table = table;
    if (comm->world->settings->tuning_file[0] == '\0') {
        if (table == NULL) return tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
        tpc_table_builtin(table);
        return TPCOMM_OK;
    }
    tpcomm_status_t status = TPCOMM_OK; /* a failure is brought to the step, so that every rank learns of it */
    if (table == NULL) status = tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
    if (status == TPCOMM_OK && team->me == 0) status = read_table(comm, table);
    if (team->n == 1) return status;
    void *data = table;
    size_t bytes = 0;
    if (status == TPCOMM_OK && team->me == 0) bytes = offsetof(tpc_table_t, rows) + table->count * sizeof *table->rows;
    status = tpc_team_broadcast(comm->world->bootstrap, team, "read tuning file", status, &data, &bytes, deadline);
    if (status != TPCOMM_OK || team->me == 0) return status;
    bool fits = bytes >= offsetof(tpc_table_t, rows) && bytes <= sizeof *table;
    if (fits) memcpy(table, data, bytes);
    fits = fits && bytes == offsetof(tpc_table_t, rows) + table->count * sizeof *table->rows;
    free(data);
    return fits ? TPCOMM_OK
                : tpc_error(TPCOMM_ERR_PEER_FAILED, "the tuning table came in %zu bytes, which is no table", bytes);
}

/* The last vote: what the choice depends on is equal, and everybody has everything. */
static tpcomm_status_t vote_ready(tpcomm_t *comm, const tpc_team_t *team, tpcomm_status_t status,
                                  const tpc_deadline_t *deadline) {
    tpc_agree_item_t items[2] = {{.name = "hash of the tuning table", .set = true},
                                 {.name = "hash of the agreed record", .set = true}};
    const tpc_agreed_t *a = &comm->agreed;
    uint64_t record[] = {(uint64_t)a->size,
                         (uint64_t)a->device_kind,
                         (uint64_t)a->topology,
                         a->deterministic,
                         a->nccl,
                         a->shares_device,
                         (uint64_t)a->forced_path,
                         a->workspace_bytes,
                         tpc_backend_set_made(&comm->backends)};
    uint64_t table_hash = tpc_hook_value("table_hash", tpc_table_hash(comm->world->table));
    snprintf(items[0].value, sizeof items[0].value, "%016llx", (unsigned long long)table_hash);
    snprintf(items[1].value, sizeof items[1].value, "%016llx",
             (unsigned long long)tpc_hash(TPC_HASH_START, record, sizeof record));
    return tpc_agree(comm->world->bootstrap, team, "ready", status, items, 2, deadline);
}

uint64_t tpc_comm_rank_seq(const tpcomm_t *comm, int32_t rank) {
    if (rank == comm->rank) return atomic_load_explicit(&comm->device.flight.seq, memory_order_acquire);
    uint64_t seq = tpc_backend_set_rank_seq(&comm->backends, rank);
    uint64_t begun = atomic_load_explicit(&comm->failure.slots[rank].begun, memory_order_relaxed);
    return begun > seq ? begun : seq;
}

/* The host plane's rounds carry batch metadata, tens of KiB at most: small chunks, small memory. */
static tpc_agreed_t host_plane_facts(const tpc_agreed_t *agreed) {
    return (tpc_agreed_t){.size = agreed->size,
                          .device_kind = TPCOMM_DEVICE_CPU,
                          .topology = agreed->topology,
                          .workspace_bytes = HOST_PLANE_BYTES};
}

/* The workspace's data: failure slots, the relay's board, noted calls; then the backends' parts, then the host plane's;
 * each of these begins on a page. */
static size_t calls_offset(const tpcomm_t *comm) {
    size_t bytes = (size_t)comm->size * sizeof(tpc_failure_slot_t);
    return tpc_comm_spans(comm) ? bytes + sizeof(tpc_relay_board_t) : bytes;
}

static size_t slots_bytes(const tpcomm_t *comm) {
    size_t header = sizeof(tpc_workspace_header_t), end = header + calls_offset(comm);
    if (comm->notes_calls) end += (size_t)comm->size * sizeof(tpc_rank_calls_t);
    return (end + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES - header;
}

static tpcomm_status_t plan_workspace(tpcomm_t *comm, size_t *device_bytes_p, size_t *host_bytes_p) {
    tpc_agreed_t facts = host_plane_facts(&comm->agreed);
    comm->notes_calls = tpc_backend_set_notes(&comm->backends);
    tpcomm_status_t status = tpc_backend_set_plan(&comm->backends, &comm->agreed, device_bytes_p);
    if (status != TPCOMM_OK || tpc_comm_spans(comm)) return status; /* host messages between hosts go over the links */
    return tpc_host_backend->workspace_bytes(&facts, host_bytes_p);
}

/* Who is where, from what all members know alike. */
static void find_hosts(tpcomm_t *comm) {
    const tpc_bootstrap_t *bootstrap = comm->world->bootstrap;
    tpc_relay_t *relay = &comm->relay;
    *relay = (tpc_relay_t){.size = comm->size, .ranks = comm->ranks, .channel = comm->id};
    for (int32_t r = 0; r < comm->size; r++) {
        int32_t first = 0;
        const char *host = tpc_bootstrap_member(bootstrap, comm->ranks[r])->host_id;
        while (strcmp(tpc_bootstrap_member(bootstrap, comm->ranks[first])->host_id, host) != 0) first++;
        relay->host[r] = first == r ? relay->hosts++ : relay->host[first];
    }
    relay->here = relay->host[comm->rank];
    for (int32_t r = 0; r < comm->size; r++) {
        if (relay->host[r] != relay->here) continue;
        if (r == comm->rank) comm->here_me = comm->here_size;
        comm->here[comm->here_size++] = comm->ranks[r];
    }
}

/* "0, 1 on host 'a'", with the last name_bytes of the name. */
static size_t describe_host(const tpcomm_t *comm, int32_t host, bool by_world_rank, size_t name_bytes, char *text,
                            size_t bytes) {
    const char *name = "";
    size_t used = 0;
    for (int32_t r = 0; r < comm->size; r++) {
        if (comm->relay.host[r] != host) continue;
        used = tpc_text_append(text, bytes, used, "%s%d", used > 0 ? ", " : "", by_world_rank ? comm->ranks[r] : r);
        name = tpc_bootstrap_member(comm->world->bootstrap, comm->ranks[r])->host_id;
    }
    size_t length = strlen(name);
    bool whole = length <= name_bytes;
    return tpc_text_append(text, bytes, used, " on host '%s%s'", whole ? "" : "...",
                           whole ? name : name + length - name_bytes);
}

#define SHORT_NAME_BYTES 16
#define MORE_HOSTS_BYTES 24 /* "; 31 more hosts" */

const char *tpc_comm_where(const tpcomm_t *comm, bool by_world_rank, char *text, size_t bytes) {
    char piece[320];
    size_t name_bytes = SIZE_MAX, needed = MORE_HOSTS_BYTES;
    for (int32_t host = 0; host < comm->relay.hosts; host++)
        needed += 2 + describe_host(comm, host, by_world_rank, name_bytes, piece, sizeof piece);
    if (needed >= bytes) name_bytes = SHORT_NAME_BYTES;
    size_t used = tpc_text_append(text, bytes, 0, "%sranks ", by_world_rank ? "world " : "");
    for (int32_t host = 0; host < comm->relay.hosts; host++) {
        size_t length = describe_host(comm, host, by_world_rank, name_bytes, piece, sizeof piece);
        int32_t left = comm->relay.hosts - host;
        if (used + length + MORE_HOSTS_BYTES >= bytes) {
            (void)tpc_text_append(text, bytes, used, "%s%d more host%s", host > 0 ? "; " : "on ", left,
                                  left > 1 ? "s" : "");
            break;
        }
        used = tpc_text_append(text, bytes, used, "%s%s", host > 0 ? "; " : "", piece);
    }
    tpc_text_clean(text); /* where a name was cut inside a character */
    return text;
}

/* The members on one host share memory. A host where that fails is everybody's failure. */
static tpcomm_status_t open_workspace(tpcomm_t *comm, const tpc_team_t *team, size_t bytes,
                                      const tpc_deadline_t *deadline) {
    tpc_bootstrap_t *bootstrap = comm->world->bootstrap;
    if (!tpc_comm_spans(comm))
        return tpc_workspace_open(bootstrap, team, &tpc_cpu_device, comm->id, bytes, deadline, &comm->workspace);
    uint64_t channel = tpc_hash(comm->id, "here", 4);
    tpc_team_t here = {.channel = channel, .ranks = comm->here, .n = comm->here_size, .me = comm->here_me};
    tpcomm_status_t status =
        tpc_workspace_open(bootstrap, &here, &tpc_cpu_device, comm->id, bytes, deadline, &comm->workspace);
    return tpc_team_gather(bootstrap, team, "share memory on each host", status, NULL, 0, NULL, deadline);
}

static void set_up_health(tpcomm_t *comm) {
    tpc_workspace_header_t *header = comm->workspace.header;
    comm->workspace.stays = &comm->workspace_stays;
    const tpc_settings_t *settings = comm->world->settings;
    atomic_store(&header->op_timeout_ms, settings->op_timeout_ms); /* the same on all ranks */
    comm->failure = (tpc_failure_t){.word = &header->fail,
                                    .slots = (void *)comm->workspace.data,
                                    .rank = comm->rank,
                                    .size = comm->size,
                                    .wake = wake_all,
                                    .wake_arg = comm};
    comm->calls = (tpc_calls_t){.ranks = comm->notes_calls ? (void *)(comm->workspace.data + calls_offset(comm)) : NULL,
                                .failure = &comm->failure,
                                .rank = comm->rank,
                                .size = comm->size,
                                .compares = comm->check != TPCOMM_CHECK_OFF};
    if (tpc_comm_spans(comm)) {
        comm->relay.calls = &comm->calls;
        comm->relay.bootstrap = comm->world->bootstrap;
        comm->relay.failure = &comm->failure;
        comm->relay.board = (void *)(comm->failure.slots + comm->size);
        comm->relay.fork_generation = comm->fork_generation;
        comm->failure.relay = &comm->relay;
    }
    comm->device.wait = (tpc_wait_t){.failure = &comm->failure,
                                     .timeout_ms = &header->op_timeout_ms,
                                     .spin_us = spin_us(comm->here_size),
                                     .interrupted = settings->config.interrupted,
                                     .interrupted_arg = settings->config.interrupted_arg};
    comm->host.wait = comm->device.wait;
    comm->host.wait.timeout_ms = &comm->host.timeout_ms;
}

static tpcomm_status_t make_planes(tpcomm_t *comm, const tpc_team_t *team, size_t device_bytes,
                                   const tpc_deadline_t *deadline) {
    tpc_workspace_t area = comm->workspace;
    area.data += slots_bytes(comm);
    comm->host_area = area;
    comm->host_area.data += device_bytes;
    tpcomm_status_t status = TPCOMM_OK;
    if (comm->agreed.device_kind == TPCOMM_DEVICE_CUDA)
        status = tpc_cuda_order_new(&comm->devices[comm->rank], &comm->order);
    if (status != TPCOMM_OK) return status;
    tpc_backend_group_t group = {.agreed = comm->agreed,
                                 .rank = comm->rank,
                                 .bootstrap = comm->world->bootstrap,
                                 .team = team,
                                 .deadline = deadline,
                                 .env = &comm->world->settings->env,
                                 .devices = comm->devices,
                                 .plane = "",
                                 .workspace = &area,
                                 .order = comm->order,
                                 .wait = &comm->device.wait,
                                 .failure = &comm->failure,
                                 .calls = &comm->calls};
    status = tpc_backend_set_make(&comm->backends, &group, comm->name);
    if (!tpc_backend_set_notes(&comm->backends)) comm->calls.ranks = NULL; /* who wanted them was left out */
    if (status != TPCOMM_OK || tpc_comm_spans(comm)) return status;
    group.agreed = host_plane_facts(&comm->agreed);
    group.plane = "host ";
    group.workspace = &comm->host_area;
    group.order = NULL;
    group.wait = &comm->host.wait;
    void *state = NULL;
    status = tpc_host_backend->create(&group, &state);
    if (status == TPCOMM_OK) comm->host_state = state;
    return status;
}

static tpcomm_status_t make_records(tpcomm_t *comm) {
    uint64_t records = comm->world->settings->env.value[TPC_ENV_FLIGHT_RECORDS].u64;
    tpcomm_status_t status = tpc_flight_init(&comm->device.flight, records);
    return status == TPCOMM_OK ? tpc_flight_init(&comm->host.flight, records) : status;
}

static tpcomm_status_t make_parts(tpcomm_t *comm, const tpc_team_t *team, bool is_world, size_t device_bytes,
                                  const tpc_deadline_t *deadline) {
    const tpc_table_t *table = comm->world->table;
    tpcomm_status_t status = make_records(comm);
    if (status == TPCOMM_OK) status = make_planes(comm, team, device_bytes, deadline);
    if (status == TPCOMM_OK) tpc_world_enlist(comm->world, comm);
    if (status == TPCOMM_OK)
        status = tpc_table_check_nccl(table, tpc_backend_set_version(&comm->backends, TPCOMM_PATH_NCCL));
    if (status == TPCOMM_OK)
        status = tpc_dispatch_new(&comm->agreed, table, comm->backends.list, comm->backends.why_not, &comm->dispatch);
    if (status == TPCOMM_OK && comm->world->settings->env.value[TPC_ENV_NOTE_WAITS].u64 != 0)
        status = tpc_backend_set_note_waits(&comm->backends, true);
    if (status == TPCOMM_OK) status = tpc_hook("watch", comm->rank);
    if (status == TPCOMM_OK && is_world) status = tpc_world_watch(comm->world);
    return status;
}

tpcomm_status_t tpc_comm_create(tpc_world_t *world, const tpc_group_plan_t *plan, const tpc_deadline_t *deadline,
                                tpcomm_t **comm_p) {
    size_t device_bytes = 0, host_bytes = 0;
    tpc_kept_sweep(); /* before memory is asked for */
    tpcomm_t *comm = calloc(1, sizeof *comm);
    if (comm == NULL) return tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
    comm->world = world;
    comm->rank = plan->me;
    comm->size = plan->n;
    comm->id = plan->id;
    comm->fork_generation = tpc_fork_generation();
    snprintf(comm->name, sizeof comm->name, "%s", plan->name);
    memcpy(comm->ranks, plan->ranks, (size_t)plan->n * sizeof *plan->ranks);
    tpc_world_retain(world);
    find_hosts(comm);
    tpc_team_t team = {.channel = plan->id, .ranks = comm->ranks, .n = comm->size, .me = comm->rank};

    tpcomm_status_t status = TPCOMM_OK;
    if (plan->is_world) status = tpc_settings_agree(world->settings, world->bootstrap, &team, deadline);
    if (status == TPCOMM_OK) status = decide_facts(comm, &team, deadline);
    if (status == TPCOMM_OK && plan->is_world) status = share_table(comm, &team, deadline);
    if (status == TPCOMM_OK) status = plan_workspace(comm, &device_bytes, &host_bytes);
    if (status == TPCOMM_OK)
        status = open_workspace(comm, &team, slots_bytes(comm) + device_bytes + host_bytes, deadline);
    if (status == TPCOMM_OK) {
        set_up_health(comm);
        status = make_parts(comm, &team, plan->is_world, device_bytes, deadline);
        status = vote_ready(comm, &team, status, deadline);
    }
    if (status != TPCOMM_OK) {
        tpc_comm_free(comm);
        return status;
    }
    snprintf(comm->tuning_origin, sizeof comm->tuning_origin, "%s", world->table->origin);
    *comm_p = comm;
    return TPCOMM_OK;
}

/* What kernels in graphs use, and what is needed to free that. */
static void free_device_part(void *arg) {
    tpcomm_t *comm = arg;
    tpc_backend_set_destroy(&comm->backends); /* first: what looks at the group for them uses the rest */
    if (comm->host_state != NULL) tpc_host_backend->destroy(comm->host_state);
    tpc_cuda_order_free(comm->order);
    /* A forked child's mapping is shared with its parent, who counts its users. */
    if (comm->fork_generation == tpc_fork_generation()) tpc_workspace_close(&comm->workspace);
    free(comm);
}

void tpc_comm_free(tpcomm_t *comm) {
    /* Forgotten first: the watchdog uses everything else. */
    tpc_world_t *world = comm->world;
    tpc_world_forget(world, comm);
    tpc_dispatch_free(comm->dispatch);
    tpc_capture_log_free(comm->capture.log);
    /* Now: the streams of eager calls may be gone when the graphs are. */
    bool outlived = tpc_kept_in_use(&comm->graphs);
    if (outlived && comm->fork_generation == tpc_fork_generation()) tpc_backend_set_outlived(&comm->backends);
    if (outlived && comm->order != NULL) (void)tpc_cuda_order_drain(comm->order, SETTLE_WAIT_MS);
    tpc_flight_free(&comm->device.flight);
    tpc_flight_free(&comm->host.flight);
    tpc_kept_free(&comm->graphs, free_device_part, comm);
    tpc_world_release(world); /* now: a backend's timer may just tell other hosts */
    tpc_kept_sweep();
}
