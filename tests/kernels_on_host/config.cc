/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers, and how a seed becomes a way to schedule. */
#include <stdio.h>

#include "hostrun.h"

namespace hostrun {

/* splitmix64 */
uint64_t random_t::bits() {
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

bool random_t::chance(double probability) {
    return probability > 0 && (double)(bits() >> 11) * 0x1p-53 < probability;
}

/* Each seed is extreme in a few ways of its own (swarm testing): with all chances at middling values, most planted
 * faults are never found. */
config_t draw_config(uint64_t seed, bool weak, bool race) {
    static const double switches[] = {1, 1, .5, .1, .02}, plain_switches[] = {.5, .1, .02, .005};
    static const double flushes[] = {1, .3, .1, .03, .01}, starts[] = {1, .3, .03, .003};
    static const int capacities[] = {4, 16, 64, 256};
    random_t random(seed * 0x2545F4914F6CDD1Du + 7);
    config_t config;
    config.seed = seed;
    config.weak = weak;
    config.race = race;
    config.switch_chance = random.pick(switches);
    config.plain_switch_chance = random.pick(plain_switches);
    config.flush_chance = random.pick(flushes);
    config.start_chance = random.pick(starts);
    config.weight_bits = random.chance(.5) ? random.between(0, 13) : 0;
    config.victim_blocks = random.chance(.33);
    config.victim_chance = random.chance(.5) ? config.victim_blocks ? .3 : .1 : 0;
    config.shuffle_blocks = random.chance(.25);
    config.tear = random.chance(.5);
    if (weak) config.buffer_capacity = random.pick(capacities);
    if (weak) config.stale_chance = random.chance(.5) ? .3 : 0;
    return config;
}

std::string describe(const config_t &c) {
    char text[400];
    snprintf(text, sizeof(text),
             "seed %llu%s%s switch %g plain %g start %g victims %g%s weights 2^-%d%s%s buffer %d flush %g stale %g "
             "slow rank %d",
             (unsigned long long)c.seed, c.weak ? " weak" : "", c.race ? " race" : "", c.switch_chance,
             c.plain_switch_chance, c.start_chance, c.victim_chance, c.victim_blocks ? " (blocks)" : "", c.weight_bits,
             c.tear ? " torn" : "", c.shuffle_blocks ? " shuffled" : "", c.buffer_capacity, c.flush_chance,
             c.stale_chance, c.slow_rank);
    return text;
}

} // namespace hostrun
