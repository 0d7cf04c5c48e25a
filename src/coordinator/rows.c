/* SPDX-License-Identifier: Apache-2.0 */
/* Calls on rows: their arguments, the norm alone, and the composition of a reduction and a norm. */
#include "coordinator/rows.h"

#include <math.h>

#include "base/error.h"
#include "coordinator/abi.h"
#include "coordinator/comm.h"

#define HIDDEN_UNIT 8
#define HIDDEN_MOST 16384

/* ------------------------------------------------------------------ numbers */

static tpcomm_status_t check_norm_shape(tpcomm_dtype_t dtype, int32_t hidden) {
    if (tpcomm_dtype_size(dtype) == 0) return tpc_error(TPCOMM_ERR_INVALID_ARG, "dtype is %d, which is none", dtype);
    if (dtype != TPCOMM_F32 && dtype != TPCOMM_F16 && dtype != TPCOMM_BF16)
        return tpc_error(TPCOMM_ERR_UNSUPPORTED, "dtype is %s; a norm is defined for f32, f16 and bf16",
                         tpcomm_dtype_name(dtype));
    if (hidden <= 0) return tpc_error(TPCOMM_ERR_INVALID_ARG, "hidden is %d; a row has elements", hidden);
    if (hidden % HIDDEN_UNIT != 0 || hidden > HIDDEN_MOST)
        return tpc_error(TPCOMM_ERR_UNSUPPORTED, "hidden is %d; a norm takes multiples of %d up to %d", hidden,
                         HIDDEN_UNIT, HIDDEN_MOST);
    return TPCOMM_OK;
}

tpcomm_status_t tpc_rows_check(const tpcomm_call_t *call) {
    if (tpc_coll_norms(call->coll)) {
        tpcomm_status_t status = check_norm_shape(call->dtype, call->hidden);
        if (status != TPCOMM_OK) return status;
    }
    if (call->hidden <= 0) return tpc_error(TPCOMM_ERR_INVALID_ARG, "hidden is %d; a row has elements", call->hidden);
    if (call->count % (uint64_t)call->hidden != 0)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "count %llu is no number of rows of %d",
                         (unsigned long long)call->count, call->hidden);
    return TPCOMM_OK;
}

static tpcomm_status_t check_numbers(tpcomm_rms_norm_t *norm) {
    tpcomm_status_t status = check_norm_shape(norm->dtype, norm->hidden);
    if (status != TPCOMM_OK) return status;
    if (norm->weight_dtype == 0) norm->weight_dtype = norm->dtype;
    if (tpcomm_dtype_size(norm->weight_dtype) == 0)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "weight_dtype is %d, which is none", norm->weight_dtype);
    if (norm->weight_dtype != norm->dtype && norm->weight_dtype != TPCOMM_F32)
        return tpc_error(TPCOMM_ERR_UNSUPPORTED, "dtype is %s and weight_dtype %s; the weight must be %s%s",
                         tpcomm_dtype_name(norm->dtype), tpcomm_dtype_name(norm->weight_dtype),
                         tpcomm_dtype_name(norm->dtype), norm->dtype == TPCOMM_F32 ? "" : " or f32");
    if (norm->quant < TPCOMM_QUANT_NONE || norm->quant > TPCOMM_QUANT_F8_TOKEN)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "quant is %d, which is none", norm->quant);
    if (!(norm->eps > 0) || isinf(norm->eps))
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "eps is %.9g; it must be greater than 0 and finite",
                         (double)norm->eps);
    if (!isfinite(norm->weight_bias))
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "weight_bias is %.9g; it must be finite", (double)norm->weight_bias);
    return TPCOMM_OK;
}

/* ------------------------------------------------------------------ buffers */

/* Rows of one matrix, or a vector. */
typedef struct {
    const char *name;
    const void *base;
    uint64_t rows, row_bytes, stride_bytes, bytes;
    bool written;
} region_t;

enum { IN, WEIGHT, RESIDUAL, SUM, OUT, QUANTIZED, SCALE, REGIONS };

static tpcomm_status_t make_region(region_t *region_p, const char *name, const void *base, bool wanted, bool written,
                                   uint64_t rows, uint64_t hidden, uint64_t *stride, uint64_t element) {
    if (*stride == 0) *stride = hidden;
    *region_p = (region_t){.name = name, .base = base, .written = written};
    if (rows == 0 || (base == NULL && !wanted)) return TPCOMM_OK;
    if (base == NULL)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "%s is NULL, but there are %llu rows", name, (unsigned long long)rows);
    if (*stride < hidden)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "%s_stride is %llu; rows have %llu elements", name,
                         (unsigned long long)*stride, (unsigned long long)hidden);
    region_p->rows = rows;
    region_p->row_bytes = hidden * element;
    if (*stride > (uint64_t)PTRDIFF_MAX / element ||
        rows - 1 > ((uint64_t)PTRDIFF_MAX - region_p->row_bytes) / (*stride * element))
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "%s has %llu rows of stride %llu, more than memory can hold", name,
                         (unsigned long long)rows, (unsigned long long)*stride);
    region_p->stride_bytes = *stride * element;
    region_p->bytes = (rows - 1) * region_p->stride_bytes + region_p->row_bytes;
    if (region_p->bytes > UINTPTR_MAX - (uintptr_t)base)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "%s goes past the end of memory", name);
    return TPCOMM_OK;
}

/* No byte of the one is in a row of the other. Rows of one stride may lie side by side. */
static bool are_apart(const region_t *a, const region_t *b) {
    uint64_t x = (uintptr_t)a->base, y = (uintptr_t)b->base;
    if (a->bytes == 0 || b->bytes == 0 || x + a->bytes <= y || y + b->bytes <= x) return true;
    if (a->stride_bytes != b->stride_bytes) return false;
    uint64_t stride = a->stride_bytes;
    uint64_t shift = y >= x ? (y - x) % stride : (stride - (x - y) % stride) % stride;
    return shift >= a->row_bytes && shift + b->row_bytes <= stride;
}

static tpcomm_status_t check_apart(const region_t *regions, bool may_be_in_place) {
    for (int a = 0; a < REGIONS; a++)
        for (int b = a + 1; b < REGIONS; b++) {
            const region_t *x = &regions[a], *y = &regions[b];
            if ((!x->written && !y->written) || are_apart(x, y)) continue;
            bool in_place = a == IN && b == OUT && x->base == y->base && x->stride_bytes == y->stride_bytes;
            if (in_place && may_be_in_place) continue;
            return tpc_error(TPCOMM_ERR_INVALID_ARG, "%s [%p, +%llu) and %s [%p, +%llu) overlap; %s", x->name, x->base,
                             (unsigned long long)x->bytes, y->name, y->base, (unsigned long long)y->bytes,
                             may_be_in_place ? "only out may be in, with the same stride" : "they must be apart");
        }
    return TPCOMM_OK;
}

/* rows: of everything but in, which has tokens. Fills in strides. */
static tpcomm_status_t make_regions(tpcomm_rms_norm_t *norm, uint64_t rows, region_t regions_p[REGIONS]) {
    bool quantizes = norm->quant != TPCOMM_QUANT_NONE, by_token = norm->quant == TPCOMM_QUANT_F8_TOKEN;
    uint64_t element = tpcomm_dtype_size(norm->dtype), hidden = (uint64_t)norm->hidden, unit = 1, packed = 0;
    const struct {
        const char *name;
        const void *base;
        bool wanted, written;
        uint64_t rows, hidden, element;
        uint64_t *stride;
    } all[REGIONS] = {
        [IN] = {"in", norm->in, true, false, norm->tokens, hidden, element, &norm->in_stride},
        [WEIGHT] = {"weight", norm->weight, true, false, rows != 0, hidden, tpcomm_dtype_size(norm->weight_dtype),
                    &packed},
        [RESIDUAL] = {"residual", norm->residual, false, true, rows, hidden, element, &norm->residual_stride},
        [SUM] = {"sum", norm->sum, false, true, rows, hidden, element, &norm->sum_stride},
        [OUT] = {"out", norm->out, !quantizes, true, rows, hidden, element, &norm->out_stride},
        [QUANTIZED] = {"quantized", norm->quantized, quantizes, true, rows, hidden, 1, &norm->quantized_stride},
        [SCALE] = {"scale", norm->scale, quantizes, by_token, by_token || rows == 0 ? rows : 1, 1, sizeof(float),
                   &unit},
    };
    for (int i = 0; i < REGIONS; i++) {
        tpcomm_status_t status = make_region(&regions_p[i], all[i].name, all[i].base, all[i].wanted, all[i].written,
                                             all[i].rows, all[i].hidden, all[i].stride, all[i].element);
        if (status != TPCOMM_OK) return status;
    }
    return TPCOMM_OK;
}

static tpcomm_status_t check_buffers(tpcomm_rms_norm_t *norm, uint64_t rows, bool may_be_in_place) {
    bool quantizes = norm->quant != TPCOMM_QUANT_NONE;
    region_t regions[REGIONS];
    if (!quantizes && (norm->quantized != NULL || norm->scale != NULL))
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "%s is given, but quant is none",
                         norm->quantized != NULL ? "quantized" : "scale");
    if (((uintptr_t)norm->scale & (sizeof(float) - 1)) != 0)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "scale is %p; it must be aligned to %zu bytes", (void *)norm->scale,
                         sizeof(float));
    tpcomm_status_t status = make_regions(norm, rows, regions);
    return status == TPCOMM_OK ? check_apart(regions, may_be_in_place) : status;
}

/* Rows of everything but in. */
static uint64_t rows_of(const tpcomm_t *comm, tpcomm_coll_t coll, uint64_t tokens) {
    bool scatters = coll == TPCOMM_REDUCE_SCATTER_RMS_NORM;
    return scatters ? tpc_row_range(tokens, comm->size, comm->rank).count : tokens;
}

void tpc_rows_ranges(const tpcomm_t *comm, tpcomm_coll_t coll, const tpcomm_rms_norm_t *norm,
                     tpc_call_ranges_t *ranges_p) {
    tpcomm_rms_norm_t filled = *norm;
    region_t regions[REGIONS];
    ranges_p->count = 0;
    if (make_regions(&filled, rows_of(comm, coll, norm->tokens), regions) != TPCOMM_OK) return;
    for (int i = 0; i < REGIONS; i++) {
        const region_t *region = &regions[i];
        bool packed = region->bytes == region->rows * region->row_bytes;
        tpc_call_ranges_add(ranges_p,
                            (tpc_range_t){region->name, region->base, region->bytes, region->written, packed});
    }
}

/* ------------------------------------------------------------------ calls with a norm */

static tpcomm_status_t run_norm(tpcomm_t *comm, tpcomm_coll_t coll, const tpcomm_rms_norm_t *args,
                                tpcomm_stream_t stream) {
    tpcomm_rms_norm_t norm = {0};
    tpcomm_status_t status = tpc_comm_check(comm);
    if (status == TPCOMM_OK) status = tpc_struct_in("tpcomm_rms_norm", args, &norm, sizeof norm);
    if (status == TPCOMM_OK) status = check_numbers(&norm);
    if (status != TPCOMM_OK) return status;
    if (tpc_norm_device(comm->agreed.device_kind) == NULL)
        return tpc_error(TPCOMM_ERR_UNSUPPORTED, "this build has no norm on the group's device");
    if (norm.tokens > (uint64_t)PTRDIFF_MAX / tpcomm_dtype_size(norm.dtype) / (uint64_t)norm.hidden)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "%llu tokens of %d %s are more than memory can hold",
                         (unsigned long long)norm.tokens, norm.hidden, tpcomm_dtype_name(norm.dtype));
    bool scatters = coll == TPCOMM_REDUCE_SCATTER_RMS_NORM;
    status = check_buffers(&norm, rows_of(comm, coll, norm.tokens), !scatters || comm->size == 1);
    if (status != TPCOMM_OK) return status;
    const char *why_not = tpc_backend_set_check_stream(&comm->backends, stream);
    if (why_not != NULL) return tpc_error(TPCOMM_ERR_INVALID_ARG, "stream is %p: %s", (void *)stream, why_not);
    norm.struct_size = sizeof norm;
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = coll,
                          .dtype = norm.dtype,
                          .op = TPCOMM_SUM,
                          .path = norm.path,
                          .hidden = norm.hidden,
                          .in = norm.in,
                          .out = norm.out,
                          .count = norm.tokens * (uint64_t)norm.hidden,
                          .tag = norm.tag};
    return tpc_comm_submit(comm, &call, &norm, stream);
}

tpcomm_status_t tpcomm_all_reduce_rms_norm(tpcomm_t *comm, const tpcomm_rms_norm_t *args, tpcomm_stream_t stream) {
    return run_norm(comm, TPCOMM_ALL_REDUCE_RMS_NORM, args, stream);
}

tpcomm_status_t tpcomm_reduce_scatter_rms_norm(tpcomm_t *comm, const tpcomm_rms_norm_t *args, tpcomm_stream_t stream) {
    return run_norm(comm, TPCOMM_REDUCE_SCATTER_RMS_NORM, args, stream);
}

tpcomm_status_t tpc_comm_run_composed(tpcomm_t *comm, const tpc_request_t *request, tpc_outcome_t *outcome_p) {
    const tpc_norm_device_t *device = tpc_norm_device(comm->agreed.device_kind);
    *outcome_p = (tpc_outcome_t){.last_rank = -1};
    if (request->path == TPCOMM_PATH_LOCAL)
        return request->norm->tokens > 0 ? device->run(request->norm, request->stream) : TPCOMM_OK;
    bool scatters = request->call->coll == TPCOMM_REDUCE_SCATTER_RMS_NORM;
    tpcomm_rms_norm_t norm = *request->norm;
    uint64_t rows = scatters ? tpc_row_range(norm.tokens, comm->size, comm->rank).count : norm.tokens;
    tpc_call_key_t key = {.coll = request->call->coll,
                          .dtype = norm.dtype,
                          .bytes = norm.tokens * (uint64_t)norm.hidden * tpcomm_dtype_size(norm.dtype),
                          .capturing = request->capturing};
    key = tpc_dispatch_reduction_of(&key);
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = key.coll,
                          .dtype = key.dtype,
                          .op = key.op,
                          .in = norm.in,
                          .out = norm.sum != NULL ? norm.sum : norm.out,
                          .count = rows * (uint64_t)norm.hidden};
    uint64_t bytes = call.count * tpcomm_dtype_size(norm.dtype);
    tpc_choice_t choice;
    tpcomm_status_t status = tpc_dispatch_choose(comm->dispatch, &key, 0, &choice);
    if (status != TPCOMM_OK) return tpc_comm_refused(comm, status);
    tpc_request_t reduction = {.call = &call,
                               .path = choice.path,
                               .bytes = bytes,
                               .record = request->record,
                               .stream = request->stream,
                               .capturing = request->capturing,
                               .ordinal = request->ordinal};
    status = choice.backend->run(comm->backends.state[choice.backend_index], &reduction, outcome_p);
    if (status != TPCOMM_OK) return status;
    norm.in = call.out;
    norm.in_stride = (uint64_t)norm.hidden;
    norm.tokens = rows;
    norm.sum = NULL;
    return rows > 0 ? device->run(&norm, request->stream) : TPCOMM_OK;
}

/* ------------------------------------------------------------------ without a norm, without a group */

tpcomm_status_t tpcomm_all_gather_rows(tpcomm_t *comm, const void *in, void *out, uint64_t tokens, int32_t hidden,
                                       tpcomm_dtype_t dtype, tpcomm_stream_t stream) {
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = TPCOMM_ALL_GATHER_ROWS,
                          .dtype = dtype,
                          .hidden = hidden,
                          .in = in,
                          .out = out};
    if (hidden > 0 && tokens > UINT64_MAX / (uint64_t)hidden)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "%llu tokens of %d elements are more than memory can hold",
                         (unsigned long long)tokens, hidden);
    call.count = hidden > 0 ? tokens * (uint64_t)hidden : tokens;
    return tpcomm_call(comm, &call, stream);
}

tpcomm_status_t tpcomm_row_range(uint64_t tokens, int32_t size, int32_t rank, uint64_t *first, uint64_t *count) {
    if (size < 1) return tpc_error(TPCOMM_ERR_INVALID_ARG, "size is %d; a group has ranks", size);
    if (rank < 0 || rank >= size)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "rank is %d; a group of %d has 0 to %d", rank, size, size - 1);
    if (first == NULL || count == NULL)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "%s is NULL", first == NULL ? "first" : "count");
    tpc_row_range_t range = tpc_row_range(tokens, size, rank);
    *first = range.first;
    *count = range.count;
    return TPCOMM_OK;
}

tpcomm_status_t tpcomm_rms_norm(tpcomm_device_kind_t device_kind, const tpcomm_rms_norm_t *args,
                                tpcomm_stream_t stream) {
    if (device_kind != TPCOMM_DEVICE_CPU && device_kind != TPCOMM_DEVICE_CUDA)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "device_kind is %d; it must be cpu or cuda", device_kind);
    const tpc_norm_device_t *device = tpc_norm_device(device_kind);
    if (device == NULL) return tpc_error(TPCOMM_ERR_UNSUPPORTED, "this build has no norm on cuda devices");
    tpcomm_rms_norm_t norm = {0};
    tpcomm_status_t status = tpc_struct_in("tpcomm_rms_norm", args, &norm, sizeof norm);
    if (status == TPCOMM_OK) status = check_numbers(&norm);
    if (status == TPCOMM_OK) status = check_buffers(&norm, norm.tokens, true);
    if (status != TPCOMM_OK) return status;
    if (norm.sum != NULL) return tpc_error(TPCOMM_ERR_INVALID_ARG, "sum is given, but a norm alone has its sum in in");
    if (norm.path != 0) return tpc_error(TPCOMM_ERR_INVALID_ARG, "path is %d, but a norm alone has none", norm.path);
    const char *why_not = device->check_stream(stream);
    if (why_not != NULL) return tpc_error(TPCOMM_ERR_INVALID_ARG, "stream is %p: %s", (void *)stream, why_not);
    return norm.tokens > 0 ? device->run(&norm, stream) : TPCOMM_OK;
}
