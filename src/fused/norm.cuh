/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Residual, RMSNorm and quantisation of one row by the working threads of a block: docs/numerics.md's arithmetic, the
 * same bits for any number of threads.
 *
 * A row is taken in octets of 8 consecutive elements. A warp owns whole groups of 32 octets: group warp, warp + warps,
 * ...; lane l has octet l of each. So an octet's sum of squares is one thread's, a group's is a tree in a warp, and
 * only the groups' sums, 64 at most, go through shared memory; every warp then adds these up for itself. One barrier a
 * row: the sums of consecutive rows have places of their own, and a warp that writes row r + 2's has passed the barrier
 * of r + 1, which no warp reaches before it has read those of row r.
 */
#ifndef TPC_FUSED_NORM_CUH
#define TPC_FUSED_NORM_CUH

#include "custom_ar/vec.cuh"
#include "fused_abi.h"

#define TPC_NORM_GROUPS 64

/**
 * The working threads of a block, and what they exchange. ALIGNED: every piece of 16 bytes of every matrix, and every 8
 * codes, lie on a multiple of their size (tpc_norm_aligned); kernels that serve others too are slower.
 */
template <bool ALIGNED> struct team_t {
    unsigned threads, warps, warp, lane;
    float *groups;      /**< [2][TPC_NORM_GROUPS], zeros where a row has no group */
    uint32_t *greatest; /**< [2][32] */
};

/** Packets of 16 bytes that hold an octet. */
template <typename T> struct octet_packets {
    enum { COUNT = 8 / element_t<T>::PER_VEC };
};

/** V octets of a thread: x[packet][v], so that packets of one kind lie together. */
template <typename T, int V> struct octets_t {
    vec_t x[octet_packets<T>::COUNT][V];
    TPC_DEVICE float get(int v, int e) const {
        return element_t<T>::get(x[e / element_t<T>::PER_VEC][v], e % element_t<T>::PER_VEC);
    }
    /** All of an octet, rounded. */
    TPC_DEVICE void put(int v, const float *value) {
#pragma unroll
        for (int i = 0; i < octet_packets<T>::COUNT; i++) x[i][v] = round_vec<T>(value + element_t<T>::PER_VEC * i);
    }
};

/*
 * 16 bytes of a row. Rows are whole vectors, so that nothing is written beside them, and read only in the same word.
 * What is not aligned is stored by bytes, out of line: kernels have many of these places.
 */
TPC_DEVICE vec_t load_shifted(const unsigned char *from) {
    unsigned shift = (unsigned)((uintptr_t)from & 3u);
    const uint32_t *words = (const uint32_t *)(from - shift);
    vec_t v;
    uint32_t low = edge_load(words, shift, 4);
#pragma unroll
    for (int w = 0; w < 3; w++) {
        uint32_t high = words[w + 1];
        v.word[w] = __funnelshift_r(low, high, 8 * shift);
        low = high;
    }
    v.word[3] = __funnelshift_r(low, shift != 0 ? edge_load(words + 4, 0, shift) : 0, 8 * shift);
    return v;
}

static __device__ __noinline__ void store_bytes(unsigned char *to, vec_t v) {
#pragma unroll
    for (int b = 0; b < 16; b++) to[b] = (unsigned char)(v.word[b / 4] >> (8 * (b % 4)));
}

template <bool ALIGNED> TPC_DEVICE vec_t load_piece(const unsigned char *from) {
    if (!ALIGNED && ((uintptr_t)from & 15u) != 0) return load_shifted(from);
    uint4 q = *(const uint4 *)from;
    vec_t v = {{q.x, q.y, q.z, q.w}};
    return v;
}

template <bool ALIGNED> TPC_DEVICE void store_piece(unsigned char *to, const vec_t &v) {
    if (!ALIGNED && ((uintptr_t)to & 15u) != 0)
        store_bytes(to, v);
    else
        *(uint4 *)to = make_uint4(v.word[0], v.word[1], v.word[2], v.word[3]);
}

/** The v-th octet of a thread of the team. */
template <bool A> TPC_DEVICE uint32_t octet_of(const team_t<A> &team, int v) {
    return 32 * (team.warp + (uint32_t)v * team.warps) + team.lane;
}

template <typename T, int V, bool A>
TPC_DEVICE void load_row(const unsigned char *row, uint32_t hidden, const team_t<A> &team, octets_t<T, V> &row_p) {
#pragma unroll
    for (int v = 0; v < V; v++) {
        uint32_t octet = octet_of(team, v);
        if (8 * octet >= hidden) continue;
#pragma unroll
        for (int i = 0; i < octet_packets<T>::COUNT; i++)
            row_p.x[i][v] = load_piece<A>(row + 8 * sizeof(T) * octet + 16 * i);
    }
}

template <typename T, int V, bool A>
TPC_DEVICE void store_row(unsigned char *row, uint32_t hidden, const team_t<A> &team, const octets_t<T, V> &x) {
#pragma unroll
    for (int v = 0; v < V; v++) {
        uint32_t octet = octet_of(team, v);
        if (8 * octet >= hidden) continue;
#pragma unroll
        for (int i = 0; i < octet_packets<T>::COUNT; i++)
            store_piece<A>(row + 8 * sizeof(T) * octet + 16 * i, x.x[i][v]);
    }
}

TPC_DEVICE float warp_tree(float x) {
#pragma unroll
    for (int stride = 16; stride > 0; stride /= 2)
        x = __fadd_rn(x, warp_exchange(x, TPC_FAULT(norm_tree_upward) ? 16 / stride : stride));
    return x;
}

TPC_DEVICE uint32_t warp_greatest(uint32_t x) {
#pragma unroll
    for (int stride = 16; stride > 0; stride /= 2) {
        uint32_t other = __float_as_uint(warp_exchange(__uint_as_float(x), stride));
        x = other > x ? other : x;
    }
    return x;
}

/** E4M3, saturating. A code is a float of 4 exponent bits whose bias is 120 less; below 2^-6, units of 2^-9, which is a
 * unit of f32 next to 2^14. */
TPC_DEVICE uint32_t f8_of(float x) {
    uint32_t bits = __float_as_uint(x), magnitude = bits & 0x7FFFFFFFu, most = 0x43E00000u; /* 448 */
    uint32_t kept = magnitude > most ? most : magnitude;
    uint32_t code = (kept - (120u << 23) + 0x7FFFFu + (kept >> 20 & 1u)) >> 20;
    if (kept < 121u << 23) code = __float_as_uint(__fadd_rn(__uint_as_float(kept), 16384.0f)) - 0x46800000u;
    code |= bits >> 24 & 0x80u;
    return magnitude > 0x7F800000u ? 0x7Fu : code;
}

static __device__ __noinline__ void store_codes_bytes(unsigned char *to, uint32_t low, uint32_t high) {
#pragma unroll
    for (int b = 0; b < 4; b++) {
        to[b] = (unsigned char)(low >> (8 * b));
        to[4 + b] = (unsigned char)(high >> (8 * b));
    }
}

template <bool ALIGNED> TPC_DEVICE void store_codes(unsigned char *row, uint32_t octet, uint32_t low, uint32_t high) {
    unsigned char *to = row + 8 * octet;
    if (!ALIGNED && ((uintptr_t)to & 7u) != 0)
        store_codes_bytes(to, low, high);
    else
        *(uint2 *)to = make_uint2(low, high);
}

template <typename T, int V, bool A>
TPC_DEVICE void quantize_row(unsigned char *row, uint32_t hidden, const team_t<A> &team, const octets_t<T, V> &y,
                             float scale) {
    float inverse = __fdiv_rn(1.0f, scale);
#pragma unroll
    for (int v = 0; v < V; v++) {
        uint32_t octet = octet_of(team, v), word[2] = {0, 0};
        if (8 * octet >= hidden) continue;
#pragma unroll
        for (int e = 0; e < 8; e++) word[e / 4] |= f8_of(__fmul_rn(y.get(v, e), inverse)) << (8 * (e % 4));
        store_codes<A>(row, octet, word[0], word[1]);
    }
}

/** Bits of the greatest magnitude among a thread's elements of a row; a NaN is above all. */
template <typename T, int V, bool A>
TPC_DEVICE uint32_t greatest_of(uint32_t hidden, const team_t<A> &team, const octets_t<T, V> &y) {
    uint32_t greatest = 0;
#pragma unroll
    for (int v = 0; v < V; v++) {
        if (8 * octet_of(team, v) >= hidden) continue;
#pragma unroll
        for (int e = 0; e < 8; e++) {
            uint32_t magnitude = __float_as_uint(y.get(v, e)) & 0x7FFFFFFFu;
            greatest = magnitude > greatest ? magnitude : greatest;
        }
    }
    return greatest;
}

/** The scale of a row whose greatest magnitude has these bits; 1 where that would be zero or subnormal. */
TPC_DEVICE float scale_of(uint32_t greatest) {
    float scale = __fdiv_rn(__uint_as_float(greatest), 448.0f);
    if (isnan(scale)) return __uint_as_float(TPC_CANONICAL_F32);
    return scale < 0x1p-126f ? 1.0f : scale;
}

/** An octet of the weight: of T, in as many pieces as T takes, or of f32, in both. */
struct octet_weight_t {
    vec_t piece[2];
};

template <typename T, bool A> TPC_DEVICE octet_weight_t load_weight(const tpc_norm_params_t &n, uint32_t octet) {
    const unsigned char *from = (const unsigned char *)n.weight + (n.weight_is_f32 ? 32 : 8 * sizeof(T)) * octet;
    octet_weight_t weight;
    weight.piece[0] = load_piece<A>(from);
    if (n.weight_is_f32) weight.piece[1] = load_piece<A>(from + 16);
    return weight;
}

template <typename T> TPC_DEVICE void widen_weight(const tpc_norm_params_t &n, octet_weight_t weight, float *value) {
    if (n.weight_is_f32) {
#pragma unroll
        for (int e = 0; e < 8; e++) value[e] = element_t<float>::get(weight.piece[e / 4], e % 4);
    } else {
        if (element_t<T>::COSTLY) /* else all rows' would be held, twice as wide, for the next ones */
            for (int w = 0; w < 4; w++) compute_anew(weight.piece[0].word[w]);
#pragma unroll
        for (int e = 0; e < 8; e++)
            value[e] = element_t<T>::get(weight.piece[e / element_t<T>::PER_VEC], e % element_t<T>::PER_VEC);
    }
}

/** Both in one, of which less is held at a time. */
template <typename T, bool A>
TPC_DEVICE void load_wide_weight(const tpc_norm_params_t &n, uint32_t octet, float *value) {
    const unsigned char *from = (const unsigned char *)n.weight;
    if (n.weight_is_f32) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            vec_t w = load_piece<A>(from + 32 * octet + 16 * i);
#pragma unroll
            for (int e = 0; e < 4; e++) value[4 * i + e] = element_t<float>::get(w, e);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < octet_packets<T>::COUNT; i++) {
        vec_t w = load_piece<A>(from + 8 * sizeof(T) * octet + 16 * i);
#pragma unroll
        for (int e = 0; e < element_t<T>::PER_VEC; e++) value[element_t<T>::PER_VEC * i + e] = element_t<T>::get(w, e);
    }
}

/** What a row needs beside its sum. EARLY: held while the sum is awaited; with many octets that would cost spills. */
template <typename T, int V, bool EARLY> struct beside_t {
    octets_t<T, EARLY ? V : 1> residual;
    octet_weight_t weight[EARLY ? V : 1];
};

/** Bring this thread's part of a row near: to the SM, or to the device's cache. */
template <typename T, int V, bool TO_SM, bool A>
TPC_DEVICE void prefetch_row(const unsigned char *row, uint32_t hidden, const team_t<A> &team) {
#pragma unroll
    for (int v = 0; v < V; v++) {
        uint32_t octet = octet_of(team, v);
        if (8 * octet >= hidden) continue;
        if (TO_SM)
            prefetch_to_sm(row + 8 * sizeof(T) * octet);
        else
            prefetch_to_device(row + 8 * sizeof(T) * octet);
    }
}

template <typename T, int V, bool TO_SM, bool A>
TPC_DEVICE void prefetch_weight(const tpc_norm_params_t &n, const team_t<A> &team) {
    if (n.weight == nullptr) return; /* of a rank without rows */
    if (n.weight_is_f32)
        prefetch_row<float, V, TO_SM>((const unsigned char *)n.weight, (uint32_t)n.hidden, team);
    else
        prefetch_row<T, V, TO_SM>((const unsigned char *)n.weight, (uint32_t)n.hidden, team);
}

/** Row `index` of the residual, if there is one. */
template <typename T, int V, bool TO_SM, bool A>
TPC_DEVICE void prefetch_residual(const tpc_norm_params_t &n, uint64_t index, const team_t<A> &team) {
    if (n.residual != nullptr)
        prefetch_row<T, V, TO_SM>((const unsigned char *)n.residual + index * n.residual_stride, (uint32_t)n.hidden,
                                  team);
}

/** The weight, once for all rows of a block: held, or near. */
template <typename T, int V, bool EARLY, bool A>
TPC_DEVICE void load_weights(const tpc_norm_params_t &n, const team_t<A> &team, beside_t<T, V, EARLY> &beside) {
    if constexpr (EARLY) {
        if (n.weight == nullptr) return;
#pragma unroll
        for (int v = 0; v < V; v++)
            if (8 * octet_of(team, v) < (uint32_t)n.hidden) beside.weight[v] = load_weight<T, A>(n, octet_of(team, v));
    } else {
        prefetch_weight<T, V, true>(n, team);
    }
}

/** Row `index` of the residual, if there is one: held, or near. */
template <typename T, int V, bool EARLY, bool A>
TPC_DEVICE void load_residual(const tpc_norm_params_t &n, uint64_t index, const team_t<A> &team,
                              beside_t<T, V, EARLY> &beside) {
    if constexpr (EARLY) {
        if (n.residual == nullptr) return;
        load_row<T, V>((const unsigned char *)n.residual + index * n.residual_stride, (uint32_t)n.hidden, team,
                       beside.residual);
    } else {
        prefetch_residual<T, V, true>(n, index, team);
    }
}

/** x = x + residual, rounded; into the residual as well. */
template <typename T, int V, bool EARLY, bool A>
TPC_DEVICE void add_residual(const tpc_norm_params_t &n, uint64_t index, const team_t<A> &team, octets_t<T, V> &x,
                             const beside_t<T, V, EARLY> &beside) {
    unsigned char *row = (unsigned char *)n.residual + index * n.residual_stride;
    const uint32_t hidden = (uint32_t)n.hidden;
#pragma unroll
    for (int v = 0; v < V; v++) {
        uint32_t octet = octet_of(team, v);
        if (8 * octet >= hidden) continue;
#pragma unroll
        for (int i = 0; i < octet_packets<T>::COUNT; i++) {
            unsigned char *at = row + 8 * sizeof(T) * octet + 16 * i;
            vec_t other;
            if constexpr (EARLY)
                other = beside.residual.x[i][v];
            else
                other = load_piece<A>(at);
            float sum[element_t<T>::PER_VEC];
            add_vec<T>(sum, x.x[i][v], true);
            add_vec<T>(sum, other, false);
            x.x[i][v] = round_vec<T>(sum);
            store_piece<A>(at, x.x[i][v]);
        }
    }
}

/**
 * The whole block of working threads calls this with a row's sum, rounded: x. beside: as load_weights and
 * load_residual left it. index: of the row in the outputs. turn: 0, 1, ... for the rows of a block, one after the
 * other.
 */
template <typename T, int V, bool EARLY, bool A>
TPC_DEVICE void norm_row(const tpc_norm_params_t &n, uint64_t index, unsigned turn, const team_t<A> &team,
                         octets_t<T, V> &x, const beside_t<T, V, EARLY> &beside) {
    const uint32_t hidden = (uint32_t)n.hidden;
    float *groups = team.groups + (turn % 2 * TPC_NORM_GROUPS);
    if (n.sum != nullptr) store_row((unsigned char *)n.sum + index * n.sum_stride, hidden, team, x);
    if (n.residual != nullptr && !TPC_FAULT(norm_residual_dropped)) add_residual(n, index, team, x, beside);
#pragma unroll
    for (int v = 0; v < V; v++) {
        uint32_t group = team.warp + (uint32_t)v * team.warps;
        float squares = 0;
        if (8 * octet_of(team, v) < hidden) {
            squares = __fmul_rn(x.get(v, 0), x.get(v, 0));
#pragma unroll
            for (int e = 1; e < 8; e++) squares = __fadd_rn(squares, __fmul_rn(x.get(v, e), x.get(v, e)));
        }
        squares = warp_tree(squares);
        if (team.lane == 0 && group < TPC_NORM_GROUPS) groups[group] = squares;
    }
    if (!TPC_FAULT(norm_no_barrier)) team_barrier(team.threads);
    float squares = groups[team.lane];
    squares = warp_tree(__fadd_rn(squares, groups[team.lane + 32]));
    float inverse = __frsqrt_rn(__fadd_rn(__fdiv_rn(squares, (float)hidden), n.eps));
#pragma unroll
    for (int v = 0; v < V; v++) {
        uint32_t octet = octet_of(team, v);
        if (8 * octet >= hidden) continue;
        float y[8];
        if constexpr (EARLY)
            widen_weight<T>(n, beside.weight[v], y);
        else
            load_wide_weight<T, A>(n, octet, y);
#pragma unroll
        for (int e = 0; e < 8; e++) y[e] = __fmul_rn(__fmul_rn(x.get(v, e), inverse), __fadd_rn(y[e], n.weight_bias));
        x.put(v, y);
    }
    if (n.out != nullptr) store_row((unsigned char *)n.out + index * n.out_stride, hidden, team, x);
    if (n.quant == TPCOMM_QUANT_NONE) return;
    float scale;
    if (n.quant == TPCOMM_QUANT_F8_TENSOR) {
        scale = *n.scale;
    } else {
        uint32_t *places = team.greatest + turn % 2 * 32, greatest = warp_greatest(greatest_of(hidden, team, x));
        if (team.lane == 0) places[team.warp] = greatest;
        team_barrier(team.threads);
        scale = scale_of(warp_greatest(team.lane < team.warps ? places[team.lane] : 0));
        if (team.warp == 0 && team.lane == 0) n.scale[index] = scale;
    }
    quantize_row((unsigned char *)n.quantized + index * n.quantized_stride, hidden, team, x, scale);
}

template <bool A> TPC_DEVICE team_t<A> make_team(unsigned threads, float *groups, uint32_t *greatest) {
    team_t<A> team = {threads, threads / 32, threadIdx.x / 32, threadIdx.x % 32, groups, greatest};
    return team;
}

/** Every thread of a team calls this once; a barrier must follow before norm_row. */
template <bool A> TPC_DEVICE void clear_team(const team_t<A> &team) {
    for (unsigned i = threadIdx.x; i < 2 * TPC_NORM_GROUPS; i += team.threads) team.groups[i] = 0;
}

/** The norm alone: in is the sum. */
template <typename T, int V, bool A>
__global__ void __launch_bounds__(TPC_NORM_ALONE_MAX_THREADS) norm_rows(const __grid_constant__ tpc_norm_params_t n) {
    TPC_SHARED(float, groups, 2 * TPC_NORM_GROUPS);
    TPC_SHARED(uint32_t, greatest, 2 * 32);
    team_t<A> team = make_team<A>(blockDim.x, groups, greatest);
    clear_team(team);
    team_barrier(team.threads);
    constexpr bool EARLY = V * octet_packets<T>::COUNT <= 2;
    beside_t<T, V, EARLY> beside;
    load_weights(n, team, beside);
    unsigned turn = 0;
    for (uint64_t row = blockIdx.x; row < n.rows; row += gridDim.x, turn++) {
        octets_t<T, V> x;
        load_row((const unsigned char *)n.in + row * n.in_stride, (uint32_t)n.hidden, team, x);
        load_residual(n, row, team, beside);
        norm_row(n, row, turn, team, x, beside);
    }
}

#endif
