/* SPDX-License-Identifier: Apache-2.0 */
/* Calls with a norm, among other calls: every bit as the cpu device has it, whatever the ranks' shapes. */
#include <string.h>

#include <algorithm>

#include "cases.h"
#include "fused/instances.h"
#include "group.h"

extern "C" {
#include "cpu_backend/norm.h"
}

using namespace hostrun;

static const int sizes[] = {2, 3, 4, 5, 8, 9};

/* A matrix of one rank. */
struct matrix_t {
    unsigned char *base = nullptr; /* nullptr: none */
    size_t rows = 0, stride = 0, row_bytes = 0, shift = 0;
    std::vector<unsigned char> before, expected; /* all bytes from base - shift to the end of the last row */
    unsigned char *row(size_t r) const { return base + r * stride; }
    unsigned char *want(size_t r) { return expected.data() + shift + r * stride; }
    const unsigned char *had(size_t r) const { return before.data() + shift + r * stride; }
};

struct norm_call_t {
    tpcomm_dtype_t dtype, weight_dtype;
    tpcomm_quant_t quant;
    int hidden;
    size_t tokens;
    bool scatter, twoshot, residual, sum, out, in_place;
    float bias, eps, scale; /* scale: of F8_TENSOR */
    int values;
};

/* Kinds of values: magnitude about 1, with some of any bits among them; magnitudes far apart, down to subnormal codes;
 * zeros, subnormals and the smallest normal numbers; any bits. */
enum { PLAIN, WIDE, TINY, ANY, VALUES };

struct norm_part_t {
    matrix_t in, weight, residual, sum, out, quantized, scale;
    size_t first = 0, rows = 0;
};

static size_t bytes_of(tpcomm_dtype_t dtype) {
    return dtype == TPCOMM_F32 ? 4 : 2;
}

static norm_call_t draw(random_t &random, size_t slot_bytes, int size) {
    static const tpcomm_dtype_t dtypes[] = {TPCOMM_F32, TPCOMM_F16, TPCOMM_BF16};
    static const int hiddens[] = {8, 16, 40, 256, 264, 520, 1024};
    norm_call_t call = {};
    call.dtype = random.pick(dtypes);
    call.weight_dtype = random.chance(.4) ? TPCOMM_F32 : call.dtype;
    do call.hidden = random.pick(hiddens);
    while ((size_t)call.hidden * bytes_of(call.dtype) > slot_bytes);
    size_t row = (size_t)call.hidden * bytes_of(call.dtype), most;
    call.scatter = random.chance(.25);
    call.twoshot = !call.scatter && tpc_fused_rows(TPC_FUSED_TWOSHOT, size, slot_bytes, row) > 0 && random.chance(.55);
    most = tpc_fused_rows(call.twoshot ? TPC_FUSED_TWOSHOT : TPC_FUSED_ONESHOT, size, slot_bytes, row);
    size_t usual = call.twoshot ? 2 * (size_t)size + 1 : 5;
    call.tokens = (size_t)random.between(0, (int)(most < usual ? most : usual));
    call.residual = random.chance(.6);
    call.sum = random.chance(.3);
    call.quant = (tpcomm_quant_t)random.between(0, 2);
    call.out = call.quant == TPCOMM_QUANT_NONE || random.chance(.6);
    call.in_place = call.out && !call.scatter && random.chance(.4);
    call.bias = random.chance(.5) ? 1.0f : 0.0f;
    static const float epsilons[] = {1e-6f, 0x1p-149f, 0x1p-126f, 3e38f}, scales[] = {1.0f, 0x1p-130f, 3e38f};
    call.values = random.chance(.5) ? PLAIN : random.between(0, VALUES - 1);
    call.eps = random.chance(.5) ? 1e-5f : random.pick(epsilons);
    call.scale = random.chance(.5) ? .01f : random.pick(scales);
    return call;
}

static std::string describe(const norm_call_t &call) {
    char text[256];
    snprintf(text, sizeof(text), "%s_rms_norm of %zu x %d %s, values %d, eps %g, quant %d by %g%s%s%s%s",
             call.scatter   ? "reduce_scatter"
             : call.twoshot ? "two-shot all_reduce"
                            : "all_reduce",
             call.tokens, call.hidden, tpcomm_dtype_name(call.dtype), call.values, (double)call.eps, (int)call.quant,
             (double)call.scale, call.residual ? ", residual" : "", call.sum ? ", sum" : "", call.out ? "" : ", no out",
             call.in_place ? ", in place" : "");
    return text;
}

/* An exponent for a kind of values, of dtypes whose 1 has this one; from 5 bits. */
static uint32_t exponent_of(int values, uint32_t of_one, uint32_t bits) {
    if (values == WIDE) return of_one - 12 + bits % 24;
    return values == TINY ? bits % 2 : of_one - 1 + bits % 2;
}

static void fill(random_t &random, matrix_t &matrix, tpcomm_dtype_t dtype, int values) {
    for (size_t r = 0; r < matrix.rows; r++)
        for (size_t at = 0; at < matrix.row_bytes; at += bytes_of(dtype)) {
            uint32_t word = (uint32_t)random.bits(), more = (uint32_t)(random.bits() >> 24);
            bool any = values == ANY || (values == PLAIN && random.chance(.002));
            if (values == TINY && more % 4 == 0) word &= 0x80008000u;
            if (!any) {
                uint32_t exponent = exponent_of(values, dtype == TPCOMM_F16 ? 15 : 127, more >> 8 & 31);
                if (dtype == TPCOMM_F32) word = (word & 0x807FFFFFu) | exponent << 23;
                if (dtype == TPCOMM_F16) word = (word & 0x83FFu) | exponent << 10;
                if (dtype == TPCOMM_BF16) word = (word & 0x807Fu) | exponent << 7;
            }
            memcpy(matrix.row(r) + at, &word, bytes_of(dtype));
        }
}

/* aligned: all that the fast kernels ask for. */
static matrix_t make(random_t &random, bool aligned, int rank, const char *name, size_t rows, size_t row_bytes,
                     size_t element) {
    static const size_t shifts[] = {0, 0, 0, 0, 16, 2, 4, 8, 1};
    matrix_t matrix;
    matrix.rows = rows;
    matrix.row_bytes = row_bytes;
    matrix.stride = row_bytes + (random.chance(.3) ? (aligned ? 16 : element) * random.below(12) : 0);
    matrix.shift = element == sizeof(float) && row_bytes == element ? 0 : random.pick(shifts);
    if (aligned) matrix.shift = matrix.shift / 16 * 16;
    size_t bytes = matrix.shift + (rows > 0 ? (rows - 1) * matrix.stride + row_bytes : 0);
    matrix.base = allocate(rank, bytes + (bytes == 0), name) + matrix.shift;
    return matrix;
}

static void remember(matrix_t &matrix) {
    if (matrix.base == nullptr) return;
    size_t bytes = matrix.shift + (matrix.rows > 0 ? (matrix.rows - 1) * matrix.stride + matrix.row_bytes : 0);
    matrix.before.assign(matrix.base - matrix.shift, matrix.base - matrix.shift + bytes);
    matrix.expected = matrix.before;
}

static norm_part_t make_part(random_t &random, const norm_call_t &call, int rank, int size,
                             const std::vector<unsigned char> &weight) {
    norm_part_t part;
    bool aligned = random.chance(.6); /* each rank's own affair */
    size_t element = bytes_of(call.dtype), row = (size_t)call.hidden * element;
    size_t per_rank = (call.tokens + (size_t)size - 1) / (size_t)size;
    part.first = call.scatter ? std::min(per_rank * (size_t)rank, call.tokens) : 0;
    part.rows = call.scatter ? std::min(per_rank, call.tokens - part.first) : call.tokens;
    part.in = make(random, aligned, rank, "in", call.tokens, row, element);
    fill(random, part.in, call.dtype, call.values);
    part.weight = make(random, aligned, rank, "weight", 1, weight.size(), bytes_of(call.weight_dtype));
    memcpy(part.weight.base, weight.data(), weight.size());
    if (call.residual) {
        part.residual = make(random, aligned, rank, "residual", part.rows, row, element);
        fill(random, part.residual, call.dtype, call.values);
    }
    if (call.sum) part.sum = make(random, aligned, rank, "sum", part.rows, row, element);
    if (call.in_place) part.out = part.in;
    if (call.out && !call.in_place) part.out = make(random, aligned, rank, "out", part.rows, row, element);
    if (call.quant != TPCOMM_QUANT_NONE) {
        part.quantized = make(random, aligned, rank, "quantized", part.rows, (size_t)call.hidden, 1);
        size_t scales = call.quant == TPCOMM_QUANT_F8_TOKEN ? part.rows : 1;
        part.scale = make(random, aligned, rank, "scale", scales, sizeof(float), sizeof(float));
        part.scale.stride = sizeof(float);
        if (call.quant == TPCOMM_QUANT_F8_TENSOR) memcpy(part.scale.base, &call.scale, sizeof(call.scale));
    }
    for (matrix_t *matrix :
         {&part.in, &part.weight, &part.residual, &part.sum, &part.out, &part.quantized, &part.scale})
        remember(*matrix);
    return part;
}

/* What each rank must have: the cpu device's kernels over all ranks' rows. */
static void expect(const norm_call_t &call, std::vector<norm_part_t> &parts) {
    tpc_reduce_fn_t reduce = tpc_reduce_find_isa(TPC_REDUCE_GENERIC, call.dtype, TPCOMM_SUM);
    tpc_norm_fn_t kernel = tpc_norm_find(call.dtype, call.weight_dtype);
    std::vector<unsigned char> sum((size_t)call.hidden * bytes_of(call.dtype));
    for (norm_part_t &part : parts)
        for (size_t r = 0; r < part.rows; r++) {
            std::vector<const void *> in;
            for (const norm_part_t &other : parts) in.push_back(other.in.had(part.first + r));
            reduce(sum.data(), in.data(), (int32_t)parts.size(), (size_t)call.hidden);
            if (call.sum) memcpy(part.sum.want(r), sum.data(), sum.size());
            tpc_norm_row_t row = {};
            row.sum = sum.data();
            row.weight = part.weight.had(0);
            row.residual = call.residual ? part.residual.want(r) : nullptr;
            row.out = call.out ? part.out.want(r) : nullptr;
            row.quantized = part.quantized.base != nullptr ? part.quantized.want(r) : nullptr;
            if (part.scale.base != nullptr)
                row.scale = (float *)(void *)part.scale.want(call.quant == TPCOMM_QUANT_F8_TOKEN ? r : 0);
            row.hidden = (size_t)call.hidden;
            row.quant = call.quant;
            row.eps = call.eps;
            row.weight_bias = call.bias;
            kernel(&row);
        }
}

static tpc_norm_params_t params_of(const norm_call_t &call, const norm_part_t &part, int size) {
    tpc_norm_params_t n = {};
    n.in = part.in.base;
    n.weight = part.rows > 0 ? part.weight.base : nullptr; /* not needed, and may be none */
    n.residual = part.residual.base;
    n.sum = part.sum.base;
    n.out = part.out.base;
    n.quantized = part.quantized.base;
    n.scale = (float *)(void *)part.scale.base;
    n.in_stride = part.in.stride;
    n.residual_stride = part.residual.stride;
    n.sum_stride = part.sum.stride;
    n.out_stride = part.out.stride;
    n.quantized_stride = part.quantized.stride;
    n.tokens = call.tokens;
    n.per_rank = call.scatter ? (call.tokens + (size_t)size - 1) / (size_t)size : 0;
    n.hidden = call.hidden;
    n.dtype = call.dtype;
    n.weight_is_f32 = call.weight_dtype == TPCOMM_F32;
    n.quant = call.quant;
    n.eps = call.eps;
    n.weight_bias = call.bias;
    return n;
}

static tpc_norm_shape_t draw_shape(random_t &random, int hidden) {
    static const int vectors[] = {1, 2, 4};
    int groups = (hidden + 255) / 256, v = random.pick(vectors);
    tpc_norm_shape_t shape = {(groups + v - 1) / v + (int)random.below(2), v}; /* one warp too many does no harm */
    return shape;
}

/* In one launch, or two with some of the rows each. */
static int launch(random_t &random, group_t &group, const norm_call_t &call, const norm_part_t &part, int rank,
                  size_t first_rows) {
    tpc_norm_params_t n = params_of(call, part, group.size);
    tpc_ar_params_t p = group.base_params(rank);
    uint64_t rows = call.scatter ? n.per_rank : call.tokens;
    int launches = 0;
    p.what = 77;
    p.op = TPCOMM_SUM;
    do {
        n.rows = n.first == 0 && first_rows < rows ? first_rows : rows - n.first;
        p.hash = (uint32_t)(rows * 31 + n.first);
        p.early = group.early && random.chance(.7);
        tpc_fused_instances(call.twoshot ? TPC_FUSED_TWOSHOT : TPC_FUSED_ONESHOT, call.dtype)
            ->launch(&p, &n, draw_shape(random, call.hidden), random.between(1, 3),
                     (tpcomm_stream_t)(intptr_t)(rank + 1));
        n.first += n.rows;
        launches++;
    } while (n.first < rows);
    return launches;
}

static std::string check(const norm_call_t &call, const norm_part_t &part, int rank) {
    const struct {
        const char *name;
        const matrix_t *matrix;
    } all[] = {{"in", call.in_place ? nullptr : &part.in},
               {"residual", &part.residual},
               {"sum", &part.sum},
               {"out", &part.out},
               {"quantized", &part.quantized},
               {"scale", &part.scale}};
    for (const auto &each : all) {
        if (each.matrix == nullptr || each.matrix->base == nullptr) continue;
        const unsigned char *got = each.matrix->base - each.matrix->shift;
        for (size_t i = 0; i < each.matrix->expected.size(); i++) {
            if (got[i] == each.matrix->expected[i]) continue;
            char text[160];
            snprintf(text, sizeof(text),
                     ": byte %zu of %s (rows of %zu bytes, %zu apart, %zu before) is %02x, want %02x", i, each.name,
                     each.matrix->row_bytes, each.matrix->stride, each.matrix->shift, got[i], each.matrix->expected[i]);
            return describe(call) + " on rank " + std::to_string(rank) + text;
        }
    }
    return "";
}

static std::vector<unsigned char> draw_weight(random_t &random, const norm_call_t &call) {
    std::vector<unsigned char> weight((size_t)call.hidden * bytes_of(call.weight_dtype));
    matrix_t matrix;
    matrix.base = weight.data();
    matrix.rows = 1;
    matrix.row_bytes = weight.size();
    fill(random, matrix, call.weight_dtype, call.values == TINY ? PLAIN : call.values);
    return weight;
}

/* The norm alone, of rank 0. */
static std::string norm_alone(random_t &random, const config_t &config) {
    begin(1, config);
    norm_call_t call = draw(random, 8192, 1);
    call.scatter = false;
    std::vector<norm_part_t> parts = {make_part(random, call, 0, 1, draw_weight(random, call))};
    tpc_norm_params_t n = params_of(call, parts[0], 1);
    n.rows = call.tokens;
    /* As expect() has it, but the sum is the row, bit for bit. */
    tpc_norm_fn_t kernel = tpc_norm_find(call.dtype, call.weight_dtype);
    norm_part_t &part = parts[0];
    for (size_t r = 0; r < part.rows; r++) {
        if (call.sum) memcpy(part.sum.want(r), part.in.had(r), part.in.row_bytes);
        tpc_norm_row_t row = {};
        row.sum = part.in.had(r);
        row.weight = part.weight.had(0);
        row.residual = call.residual ? part.residual.want(r) : nullptr;
        row.out = call.out ? part.out.want(r) : nullptr;
        row.quantized = part.quantized.base != nullptr ? part.quantized.want(r) : nullptr;
        if (part.scale.base != nullptr)
            row.scale = (float *)(void *)part.scale.want(call.quant == TPCOMM_QUANT_F8_TOKEN ? r : 0);
        row.hidden = (size_t)call.hidden;
        row.quant = call.quant;
        row.eps = call.eps;
        row.weight_bias = call.bias;
        kernel(&row);
    }
    static const int warps[] = {2, 4, 8, 16, 32}, blocks[] = {1, 2, 4}; /* up to 1024 threads */
    tpc_norm_shape_t shape = draw_shape(random, call.hidden);
    shape.warps = std::max(shape.warps, random.chance(.5) ? random.pick(warps) : 0);
    tpc_norm_launch(&n, shape, random.pick(blocks), (tpcomm_stream_t)(intptr_t)1);
    result_t result = run();
    return result.outcome != FINISHED ? result.message : check(call, part, 0);
}

/* Check that calls with a norm, among others, give the cpu device's bits, by any shapes, and leave nothing behind. */
std::string norms(config_t &config) {
    random_t random(config.seed * 0x9FB21C651E98DF25u + 2);
    if (config.seed % 6 == 0) return norm_alone(random, config);
    int size = random.pick(sizes);
    size_t slot_bytes = random.chance(.7) ? 2112 : 4160;
    if (random.chance(.2)) config.slow_rank = random.between(0, size - 1);
    begin(size, config);
    group_t group(size, slot_bytes, random.chance(.3) ? 0xFFFFFFF8u + random.below(6) : (uint32_t)random.bits() >> 1,
                  random);
    std::vector<norm_call_t> calls;
    std::vector<std::vector<norm_part_t>> made;
    for (int i = random.between(1, 3); i > 0; i--) {
        if (random.chance(.3)) group.make(group.draw_call());
        norm_call_t call = draw(random, slot_bytes, size);
        std::vector<unsigned char> weight = draw_weight(random, call);
        std::vector<norm_part_t> parts;
        for (int r = 0; r < size; r++) parts.push_back(make_part(random, call, r, size, weight));
        expect(call, parts);
        size_t first_rows = random.chance(.7) ? SIZE_MAX : 1;
        int launches = 0;
        for (int r = 0; r < size; r++) launches = launch(random, group, call, parts[(size_t)r], r, first_rows);
        while (launches-- > 0) group.note_call();
        calls.push_back(call);
        made.push_back(std::move(parts));
    }
    if (random.chance(.3)) group.make(group.draw_call());
    result_t result = run();
    if (result.outcome != FINISHED) return result.message;
    std::string wrong = group.check_results(0, group.calls());
    for (size_t c = 0; c < calls.size(); c++)
        for (int r = 0; r < size && wrong.empty(); r++) wrong = check(calls[c], made[c][(size_t)r], r);
    return wrong.empty() ? group.check_rest() : wrong;
}

/* Check that a rank which is missing from a call with a norm ends it on the others by the deadline, with NaN. */
std::string missing_norms(config_t &config) {
    random_t random(config.seed * 0x9FB21C651E98DF25u + 3);
    int size = random.pick(sizes), absent = random.between(0, size - 1);
    config.time_passes = true;
    begin(size, config);
    group_t group(size, 2112, (uint32_t)random.bits() >> 1, random);
    norm_call_t call = draw(random, 2112, size);
    call.dtype = call.weight_dtype = TPCOMM_F32;
    call.hidden = 264;
    call.tokens = 2;
    call.scatter = call.in_place = false;
    call.out = true;
    call.twoshot = random.chance(.5) && 2112 / 2 >= 264 * 4;
    std::vector<norm_part_t> parts;
    std::vector<unsigned char> weight = draw_weight(random, call);
    for (int r = 0; r < size; r++) parts.push_back(make_part(random, call, r, size, weight));
    for (int r = 0; r < size; r++)
        if (r != absent) launch(random, group, call, parts[(size_t)r], r, SIZE_MAX);
    result_t result = run();
    if (result.outcome != FINISHED) return result.message;
    for (int r = 0; r < size; r++) {
        if (r == absent) continue;
        if (group.failure(r) != (uint32_t)-TPCOMM_ERR_TIMEOUT)
            return "rank " + std::to_string(r) + " failed with " + std::to_string(group.failure(r));
        for (size_t t = 0; t < call.tokens; t++)
            for (size_t i = 0; i < 264; i++) {
                uint32_t word;
                memcpy(&word, parts[(size_t)r].out.row(t) + 4 * i, 4);
                if (word != 0x7FFFFFFFu) return "rank " + std::to_string(r) + " has a number where NaN is wanted";
            }
    }
    return "";
}
