/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Unique ids. The process that makes one binds a TCP port at once and keeps it, so that nobody can take it in between;
 * ranks of the same host use a unix socket named by the nonce, which rank 0 makes when it meets.
 */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/text.h"
#include "bootstrap/host.h"
#include "bootstrap/internal.h"

static uint64_t host_hash(const tpc_env_t *env) {
    char host_id[64];
    tpc_host_identity(env, host_id);
    return tpc_hash(TPC_HASH_START, host_id, strlen(host_id));
}

static uint64_t id_check(const tpc_wire_id_t *id) {
    return tpc_hash(TPC_HASH_START, id, offsetof(tpc_wire_id_t, check));
}

static void id_unix_name(const tpc_wire_id_t *id, char name[TPC_UNIX_NAME_BYTES]) {
    snprintf(name, TPC_UNIX_NAME_BYTES, "tpcomm-%u-id-%016llx", id->uid, (unsigned long long)id->nonce);
}

/** Bind a port and fill in where it can be reached. A machine without network has none: its ranks are on one host. */
static tpcomm_status_t listen_for_id(const tpc_env_t *env, tpc_wire_addresses_t *addresses, int *fd_p) {
    const tpc_env_value_t *bind = &env->value[TPC_ENV_BIND];
    tpc_address_t own, found[TPC_WIRE_ADDRESSES];
    size_t count = 0;
    int fd, err;
    if (bind->set) {
        char quoted[TPC_TEXT_QUOTE_BYTES];
        (void)tpc_text_quote(quoted, bind->text, strlen(bind->text));
        err = tpc_tcp_resolve(bind->text, 0, &own, 1, &count);
        if (err != 0) return tpc_error(TPCOMM_ERR_CONFIG, "TPCOMM_BIND='%s': %s", quoted, gai_strerror(err));
        err = tpc_tcp_listen(&own, &fd);
        if (err != 0) return tpc_error_errno(TPCOMM_ERR_CONFIG, err, "TPCOMM_BIND='%s'", quoted);
        found[0] = own;
    } else {
        err = tpc_tcp_listen_any(0, false, &fd);
        if (err == EMFILE || err == ENFILE)
            return tpc_error_errno(TPCOMM_ERR_NO_MEMORY, err, "cannot make a unique id");
        if (err != 0) return TPCOMM_OK;
        count = tpc_tcp_interfaces(found, TPC_WIRE_ADDRESSES - 1);
        found[count++] = (tpc_address_t){.ip = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};
    }
    err = tpc_tcp_local(fd, &own);
    if (err != 0) {
        close(fd);
        return tpc_error_errno(TPCOMM_ERR_IO, err, "getsockname");
    }
    addresses->port = own.port;
    addresses->count = (uint16_t)count;
    for (size_t i = 0; i < count; i++) memcpy(addresses->ip[i], found[i].ip, sizeof found[i].ip);
    *fd_p = fd;
    return TPCOMM_OK;
}

tpcomm_status_t tpc_id_make(const tpc_env_t *env, bool with_tcp, tpcomm_unique_id_t *id_p) {
    tpc_wire_id_t id = {.version = TPC_ID_VERSION, .uid = (uint32_t)geteuid(), .host = host_hash(env)};
    char name[TPC_UNIX_NAME_BYTES];
    int fd = -1;
    memcpy(id.magic, TPC_ID_MAGIC, sizeof id.magic);
    tpcomm_status_t status = tpc_random(&id.nonce, sizeof id.nonce);
    if (status == TPCOMM_OK && with_tcp) status = listen_for_id(env, &id.addresses, &fd);
    if (status != TPCOMM_OK) return status;
    id_unix_name(&id, name);
    status = tpc_door_reserve(name, id.nonce, fd);
    if (status != TPCOMM_OK) return status;
    id.check = id_check(&id);
    memcpy(id_p->bytes, &id, sizeof id);
    return TPCOMM_OK;
}

void tpc_id_forget(const tpcomm_unique_id_t *unique_id) {
    tpc_wire_id_t id;
    char name[TPC_UNIX_NAME_BYTES];
    memcpy(&id, unique_id->bytes, sizeof id);
    id_unix_name(&id, name);
    tpc_door_unreserve(name);
}

tpcomm_status_t tpc_bootstrap_make_id(const tpc_env_t *env, tpcomm_unique_id_t *id_p) {
    return tpc_id_make(env, true, id_p);
}

tpcomm_status_t tpc_bootstrap_meet_id(const tpcomm_unique_id_t *unique_id, int32_t rank, int32_t size,
                                      const tpc_env_t *env, const tpc_deadline_t *deadline,
                                      tpc_bootstrap_t **bootstrap_p) {
    tpc_wire_id_t id;
    memcpy(&id, unique_id->bytes, sizeof id);
    if (memcmp(id.magic, TPC_ID_MAGIC, sizeof id.magic) != 0 || id.check != id_check(&id))
        return tpc_error(TPCOMM_ERR_INVALID_ARG,
                         "the unique id was not made by tpcomm_unique_id_create, or did not arrive whole");
    if (id.version != TPC_ID_VERSION || id.addresses.count > TPC_WIRE_ADDRESSES)
        return tpc_error(TPCOMM_ERR_CONFIG_MISMATCH, "the unique id is of format %u, this tpcomm knows format %u",
                         id.version, TPC_ID_VERSION);

    char host_id[64];
    bool same_host = id.host == host_hash(env);
    tpc_host_identity(env, host_id);
    tpc_place_t place = {.job = id.nonce, .hint = "", .loopback_only = id.addresses.port == 0};
    if (env->value[TPC_ENV_BIND].set) snprintf(place.bind, sizeof place.bind, "%.255s", env->value[TPC_ENV_BIND].text);
    if (rank == 0 && !same_host)
        return tpc_error(TPCOMM_ERR_INVALID_STATE,
                         "rank 0 must be on the host where the unique id was made, best in the same process");
    if (same_host && id.uid != (uint32_t)geteuid())
        return tpc_error(TPCOMM_ERR_AUTH, "the unique id was made by user %u, this process runs as user %u", id.uid,
                         (unsigned)geteuid());
    id_unix_name(&id, place.unix_name);
    if (same_host) {
        /* Rank 0 listens here wherever it runs on this host; the TCP port is open already if it made the id itself. */
        snprintf(place.text, sizeof place.text, "unique id, unix socket @%s", place.unix_name);
        if (rank != 0) place.hint = "Is rank 0 the process that made the id, or one on its host?";
    } else {
        place.unix_name[0] = '\0';
        place.first_port = place.last_port = id.addresses.port;
        place.address_count = id.addresses.count;
        for (size_t i = 0; i < id.addresses.count; i++) memcpy(place.addresses[i].ip, id.addresses.ip[i], 16);
        if (id.addresses.port == 0)
            return tpc_error(TPCOMM_ERR_NO_TRANSPORT, "the unique id was made on another host, which has no network");
        snprintf(place.text, sizeof place.text, "unique id, TCP port %u of rank 0's host", id.addresses.port);
        place.hint = "Is rank 0 the process that made the id?";
    }
    snprintf(place.label, sizeof place.label, "%s", size == 1 ? "a world of 1" : place.text);
    if (size == 1) tpc_id_forget(unique_id); /* nobody else will come */
    return tpc_meet(&place, rank, size, host_id, deadline, bootstrap_p);
}
