// SPDX-License-Identifier: Apache-2.0
// Check that an installed tpcomm serves a C++17 program: the version of the header is the library's, two ranks reduce
// exactly.
#include <array>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <tpcomm.h>
#include <vector>

int main() {
    if (tpcomm_version() != TPCOMM_VERSION_NUMBER) return 1;
    std::array<tpcomm_t *, 2> comms{};
    if (tpcomm_init_local(2, nullptr, nullptr, comms.data()) != TPCOMM_OK) {
        std::fprintf(stderr, "init_local: %s\n", tpcomm_last_error());
        return 1;
    }
    std::array<bool, 2> exact{};
    auto rank_main = [&](std::size_t rank) {
        std::vector<int64_t> data(4097);
        for (std::size_t i = 0; i < data.size(); i++) data[i] = static_cast<int64_t>((7 * i + 3 * rank) % 13);
        if (tpcomm_all_reduce(comms[rank], data.data(), data.data(), data.size(), TPCOMM_I64, TPCOMM_SUM, nullptr) !=
            TPCOMM_OK) {
            std::fprintf(stderr, "rank %zu: %s\n", rank, tpcomm_last_error());
            return;
        }
        exact[rank] = true;
        for (std::size_t i = 0; i < data.size(); i++)
            if (data[i] != static_cast<int64_t>((7 * i) % 13 + (7 * i + 3) % 13)) exact[rank] = false;
    };
    std::thread other(rank_main, 1);
    rank_main(0);
    other.join();
    for (tpcomm_t *comm : comms)
        if (tpcomm_destroy(comm) != TPCOMM_OK) return 1;
    std::puts(exact[0] && exact[1] ? "c++: exact" : "c++: wrong");
    return exact[0] && exact[1] ? 0 : 1;
}
