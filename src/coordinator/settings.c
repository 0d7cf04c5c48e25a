/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hook.h"
#include "base/status.h"
#include "coordinator/abi.h"
#include "coordinator/backends.h"
#include "health/agreement.h"

/* What must be equal on all ranks: the library, what it can do, and each shared variable with its field of the config.
 */
enum {
    ITEM_VERSION,
    ITEM_PATHS,
    ITEM_DEVICE,
    ITEM_SHARE_DEVICE,
    ITEM_WORKSPACE_BYTES,
    ITEM_PEER_MEM,
    ITEM_PATH,
    ITEM_DETERMINISTIC,
    ITEM_NCCL,
    ITEM_CHECK,
    ITEM_TUNING_FILE,
    ITEM_INIT_TIMEOUT_MS,
    ITEM_OP_TIMEOUT_MS,
    ITEM_COUNT
};

static const struct {
    const char *name;
    tpc_env_id_t env; /* TPC_ENV_COUNT: no variable */
} item_table[ITEM_COUNT] = {
    [ITEM_VERSION] = {"library version", TPC_ENV_COUNT},
    [ITEM_PATHS] = {"paths of the library", TPC_ENV_COUNT},
    [ITEM_DEVICE] = {"TPCOMM_DEVICE (config.device_kind)", TPC_ENV_DEVICE},
    [ITEM_SHARE_DEVICE] = {"TPCOMM_SHARE_DEVICE (config.share_device)", TPC_ENV_SHARE_DEVICE},
    [ITEM_WORKSPACE_BYTES] = {"TPCOMM_WORKSPACE_BYTES (config.workspace_bytes)", TPC_ENV_WORKSPACE_BYTES},
    [ITEM_PEER_MEM] = {"TPCOMM_PEER_MEM", TPC_ENV_PEER_MEM},
    [ITEM_PATH] = {"TPCOMM_PATH (config.path)", TPC_ENV_PATH},
    [ITEM_DETERMINISTIC] = {"TPCOMM_DETERMINISTIC (config.deterministic)", TPC_ENV_DETERMINISTIC},
    [ITEM_NCCL] = {"TPCOMM_NCCL", TPC_ENV_NCCL},
    [ITEM_CHECK] = {"TPCOMM_CHECK (config.check)", TPC_ENV_CHECK},
    [ITEM_TUNING_FILE] = {"TPCOMM_TUNING_FILE (config.tuning_file)", TPC_ENV_TUNING_FILE},
    [ITEM_INIT_TIMEOUT_MS] = {"TPCOMM_INIT_TIMEOUT_MS (config.init_timeout_ms)", TPC_ENV_INIT_TIMEOUT_MS},
    [ITEM_OP_TIMEOUT_MS] = {"TPCOMM_OP_TIMEOUT_MS (config.op_timeout_ms)", TPC_ENV_OP_TIMEOUT_MS},
};

static tpcomm_status_t switch_text(const char *field, int32_t value, char *text, size_t bytes) {
    static const char *const names[] = {"", "1", "0"};
    if (value < 0 || value > TPCOMM_OFF)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "config.%s is %d; allowed are 0 (default), 1 (on), 2 (off)", field,
                         value);
    snprintf(text, bytes, "%s", names[value]);
    return TPCOMM_OK;
}

/* A config field as the text that its variable would have; "" where the field is the default. Fails: INVALID_ARG. */
static tpcomm_status_t config_text(const tpcomm_config_t *config, int item, char *text, size_t bytes) {
    static const char *const device_names[] = {"", "cuda", "cpu"};
    static const char *const check_names[] = {"", "off", "async", "sync"};
    text[0] = '\0';
    switch (item) {
    case ITEM_DEVICE:
        if (config->device_kind < 0 || config->device_kind > TPCOMM_DEVICE_CPU)
            return tpc_error(TPCOMM_ERR_INVALID_ARG,
                             "config.device_kind is %d; allowed are 0 (auto), 1 (cuda), 2 (cpu)", config->device_kind);
        snprintf(text, bytes, "%s", device_names[config->device_kind]);
        break;
    case ITEM_DETERMINISTIC:
        return switch_text("deterministic", config->deterministic, text, bytes);
    case ITEM_SHARE_DEVICE:
        return switch_text("share_device", config->share_device, text, bytes);
    case ITEM_CHECK:
        if (config->check < 0 || config->check > TPCOMM_CHECK_SYNC)
            return tpc_error(TPCOMM_ERR_INVALID_ARG,
                             "config.check is %d; allowed are 0 (default), 1 (off), 2 (async), 3 (sync)",
                             config->check);
        if (config->reserved != 0)
            return tpc_error(TPCOMM_ERR_INVALID_ARG, "config.reserved is %d; it must be 0", config->reserved);
        snprintf(text, bytes, "%s", check_names[config->check]);
        break;
    case ITEM_PATH:
        if (config->path == TPCOMM_PATH_AUTO) break;
        if (tpcomm_path_name(config->path)[0] == '?')
            return tpc_error(TPCOMM_ERR_INVALID_ARG, "config.path is %d, which is no path", config->path);
        snprintf(text, bytes, "%s", tpcomm_path_name(config->path));
        break;
    case ITEM_TUNING_FILE:
        if (config->tuning_file == NULL) break;
        if (strlen(config->tuning_file) >= bytes)
            return tpc_error(TPCOMM_ERR_INVALID_ARG, "config.tuning_file is longer than %zu bytes", bytes - 1);
        snprintf(text, bytes, "%s", config->tuning_file);
        break;
    case ITEM_INIT_TIMEOUT_MS:
        if (config->init_timeout_ms != 0) snprintf(text, bytes, "%u", config->init_timeout_ms);
        break;
    case ITEM_OP_TIMEOUT_MS:
        if (config->op_timeout_ms != 0) snprintf(text, bytes, "%u", config->op_timeout_ms);
        break;
    case ITEM_WORKSPACE_BYTES:
        if (config->workspace_bytes != 0) snprintf(text, bytes, "%llu", (unsigned long long)config->workspace_bytes);
        break;
    default:
        break;
    }
    return TPCOMM_OK;
}

/* Names of all paths, as far as a test lets this rank see them. */
static void path_names(char *text, size_t bytes) {
    uint64_t mask = tpc_hook_value("paths", UINT64_MAX);
    text[0] = '\0';
    for (const tpc_backend_t *const *backend = tpc_backends; *backend != NULL; backend++) {
        for (const tpcomm_path_t *path = (*backend)->paths; *path != 0; path++) {
            if ((mask >> *path & 1) == 0) continue;
            size_t used = strlen(text);
            snprintf(text + used, bytes - used, "%s%s", used > 0 ? " " : "", tpcomm_path_name(*path));
        }
    }
}

/* This rank's own view of one item: environment over config over default. */
static tpcomm_status_t fill_item(const tpc_settings_t *settings, int index, tpc_agree_item_t *item) {
    memset(item, 0, sizeof *item);
    item->name = item_table[index].name;
    if (index == ITEM_VERSION || index == ITEM_PATHS) {
        item->set = true;
        if (index == ITEM_PATHS)
            path_names(item->value, sizeof item->value);
        else
            snprintf(item->value, sizeof item->value, "%llu",
                     (unsigned long long)tpc_hook_value("library_version", TPCOMM_VERSION_NUMBER));
        return TPCOMM_OK;
    }
    const tpc_env_value_t *value = &settings->env.value[item_table[index].env];
    tpc_env_value_t from_config;
    if (!value->set) {
        char text[TPC_ENV_TEXT_BYTES];
        tpcomm_status_t status = config_text(&settings->config, index, text, sizeof text);
        if (status != TPCOMM_OK) return status;
        if (text[0] != '\0') {
            status = tpc_env_parse(item_table[index].env, text, &from_config);
            if (status != TPCOMM_OK) return tpc_error_prefix(status, "%s", item->name);
            value = &from_config;
        }
    }
    item->set = value->set;
    snprintf(item->value, sizeof item->value, "%s", value->text);
    return TPCOMM_OK;
}

/* Items as values in force. They were checked when they were made. */
static void take_items(tpc_settings_t *settings, const tpc_agree_item_t *items) {
    tpc_env_value_t value[ITEM_COUNT];
    for (int i = ITEM_DEVICE; i < ITEM_COUNT; i++) {
        if (tpc_env_parse(item_table[i].env, items[i].value, &value[i]) != TPCOMM_OK)
            value[i] = settings->env.value[item_table[i].env];
    }
    /* The words of the table stand in the order of the constants: auto, cuda, cpu. */
    settings->device_kind = (tpcomm_device_kind_t)value[ITEM_DEVICE].u64;
    settings->share_device = value[ITEM_SHARE_DEVICE].u64 != 0;
    snprintf(settings->peer_mem, sizeof settings->peer_mem, "%.15s", value[ITEM_PEER_MEM].text);
    settings->nccl = value[ITEM_NCCL].u64 != 0;
    settings->check = TPCOMM_CHECK_OFF + (tpcomm_check_t)value[ITEM_CHECK].u64; /* off, async, sync */
    settings->deterministic = value[ITEM_DETERMINISTIC].u64 != 0;
    if (!tpc_path_parse(items[ITEM_PATH].value, &settings->forced_path)) settings->forced_path = TPCOMM_PATH_AUTO;
    settings->init_timeout_ms = (uint32_t)value[ITEM_INIT_TIMEOUT_MS].u64;
    settings->op_timeout_ms = (uint32_t)value[ITEM_OP_TIMEOUT_MS].u64;
    settings->workspace_bytes = value[ITEM_WORKSPACE_BYTES].u64;
    snprintf(settings->tuning_file, sizeof settings->tuning_file, "%s", items[ITEM_TUNING_FILE].value);
}

/* The environment with bad values as defaults, so that this rank can still meet the others and tell them. */
static tpcomm_status_t read_env(tpc_settings_t *settings) {
    settings->status = tpc_env_read(&settings->env);
    if (settings->status == TPCOMM_OK) return TPCOMM_OK;
    snprintf(settings->text, sizeof settings->text, "%s", tpcomm_last_error());
    for (int id = 0; id < TPC_ENV_COUNT; id++) {
        tpcomm_status_t status = tpc_env_get((tpc_env_id_t)id, &settings->env.value[id]);
        if (status == TPCOMM_OK) continue;
        if (tpc_env_table[id].scope == TPC_ENV_SCOPE_RANK) return status;
        status = tpc_env_parse((tpc_env_id_t)id, tpc_env_table[id].default_text, &settings->env.value[id]);
        if (status != TPCOMM_OK) return status;
    }
    return TPCOMM_OK;
}

tpcomm_status_t tpc_settings_read(const tpcomm_config_t *config, tpc_settings_t **settings_p) {
    tpc_settings_t *settings = calloc(1, sizeof *settings);
    tpc_agree_item_t *items = calloc(ITEM_COUNT, sizeof *items);
    tpcomm_status_t status = TPCOMM_OK;
    if (settings == NULL || items == NULL) {
        status = tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
        goto fail;
    }
    if (config != NULL) status = tpc_struct_in("tpcomm_config", config, &settings->config, sizeof settings->config);
    if (status == TPCOMM_OK) status = read_env(settings);
    if (status != TPCOMM_OK) goto fail;
    for (int i = 0; i < ITEM_COUNT; i++) {
        tpcomm_status_t filled = fill_item(settings, i, &items[i]);
        if (filled == TPCOMM_OK || settings->status != TPCOMM_OK) continue;
        settings->status = filled;
        snprintf(settings->text, sizeof settings->text, "%s", tpcomm_last_error());
    }
    take_items(settings, items);
    free(items);
    *settings_p = settings;
    return TPCOMM_OK;
fail:
    free(items);
    free(settings);
    return status;
}

tpcomm_status_t tpc_settings_agree(tpc_settings_t *settings, tpc_bootstrap_t *bootstrap, const tpc_team_t *team,
                                   const tpc_deadline_t *deadline) {
    tpcomm_status_t status = settings->status;
    if (status != TPCOMM_OK) status = tpc_error(status, "%s", settings->text);
    tpc_agree_item_t *items = calloc(ITEM_COUNT, sizeof *items);
    if (items == NULL) return tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
    for (int i = 0; i < ITEM_COUNT && status == TPCOMM_OK; i++) status = fill_item(settings, i, &items[i]);
    if (status == TPCOMM_OK) status = tpc_hook("settings", team->me);
    status = tpc_agree(bootstrap, team, "agree on settings", status, items, ITEM_COUNT, deadline);
    if (status == TPCOMM_OK) take_items(settings, items);
    free(items);
    return status;
}
