/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that the kernels keep their protocol under any schedule: hundreds of seeds of each case. Or, with --mutants,
 * that each fault of faults.h, planted, is caught within those seeds.
 *
 * usage: test_kernels_* --mode weak|race|asan [--case NAME] [--seed N | --seeds N] [--fault NAME] [--mutants]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

#include "cases.h"
#include "faults.h"

tpc_fault_t tpc_planted_fault = TPC_FAULT_none;

struct fault_t {
    tpc_fault_t fault;
    const char *name, *test, *modes;
};
static const fault_t faults[] = {
#define FAULT_ROW(name, test, modes) {TPC_FAULT_##name, #name, test, modes},
    TPC_FAULTS(FAULT_ROW)
#undef FAULT_ROW
};

enum { SURVIVED = 40, CAUGHT = 41 };

struct options_t {
    std::string mode, only;
    int seed = 0, seeds = 0;
    bool mutants = false;
    const fault_t *fault = nullptr;
};

/* How to run this seed alone; also when a sanitizer ends the program. */
static std::string replay;
static void print_replay() {
    printf("  replay: %s\n", replay.c_str());
    fflush(stdout);
}

/* "" or what is wrong with this seed. */
static std::string run_seed(const options_t &options, const case_t &test, int seed, hostrun::config_t *config_p,
                            long long *steps_p) {
    bool race = options.mode == "race";
    *config_p = hostrun::draw_config((uint64_t)seed, !race, race);
    std::string wrong = test.run(*config_p);
    *steps_p = hostrun::steps_done();
    return wrong;
}

static int run_case(const options_t &options, const case_t &test, const char *program) {
    int first = options.seed > 0 ? options.seed : 1;
    int end = options.seed > 0 ? options.seed : options.seeds > 0 ? options.seeds : test.seeds;
    long long steps = 0, all_steps = 0;
    for (int seed = first; seed <= end; seed++, all_steps += steps) {
        hostrun::config_t config;
        replay = std::string(program) + " --mode " + options.mode + " --case " + test.name + " --seed " +
                 std::to_string(seed);
        if (options.fault != nullptr) replay += std::string(" --fault ") + options.fault->name;
        std::string wrong = run_seed(options, test, seed, &config, &steps);
        if (wrong.empty()) continue;
        printf("FAILED: %s, seed %d, after %lld steps: %s\n  %s\n", test.name, seed, steps, wrong.c_str(),
               hostrun::describe(config).c_str());
        print_replay();
        return 1;
    }
    printf("%s: %d seeds, %lld steps\n", test.name, end - first + 1, all_steps);
    return 0;
}

static const case_t *find_case(const std::string &name) {
    for (int i = 0; i < case_count; i++)
        if (name == cases[i].name) return &cases[i];
    return nullptr;
}

/* Runs the fault's case until it is caught; says how. In a process of its own, which the sanitizers may end. */
static bool catch_fault(const options_t &options, const fault_t &fault) {
    const case_t &test = *find_case(fault.test);
    tpc_planted_fault = fault.fault;
    for (int seed = 1; seed <= test.seeds; seed++) {
        hostrun::config_t config;
        long long steps;
        std::string wrong = run_seed(options, test, seed, &config, &steps);
        if (wrong.empty()) continue;
        printf("%-22s %s, seed %d: %s\n", fault.name, fault.test, seed, wrong.c_str());
        return true;
    }
    return false;
}

static int run_mutants(const options_t &options) {
    int survivors = 0;
    char mode = (char)(options.mode[0] - 'a' + 'A');
    for (const fault_t &fault : faults) {
        if (strchr(fault.modes, mode) == nullptr) continue;
        pid_t child = fork();
        if (child == 0) {
            if (freopen("/dev/null", "w", stderr) == nullptr) _exit(2);
            _exit(catch_fault(options, fault) ? CAUGHT : SURVIVED);
        }
        int status = 0;
        if (child < 0 || waitpid(child, &status, 0) != child) return 2;
        if (WIFEXITED(status) && WEXITSTATUS(status) == CAUGHT) continue;
        bool survives = WIFEXITED(status) && WEXITSTATUS(status) == SURVIVED;
        printf("%-22s %s\n", fault.name, survives ? "SURVIVES" : "a sanitizer ended the program");
        survivors += survives;
    }
    return survivors > 0;
}

static void usage(const char *program, const char *wrong) {
    fprintf(stderr,
            "%s: %s\nusage: %s --mode weak|race|asan [--case NAME] [--seed N | --seeds N] [--fault NAME] "
            "[--mutants]\ncases:",
            program, wrong, program);
    for (int i = 0; i < case_count; i++) fprintf(stderr, " %s", cases[i].name);
    fprintf(stderr, "\nfaults:");
    for (const fault_t &fault : faults) fprintf(stderr, " %s", fault.name);
    fprintf(stderr, "\n");
    exit(2);
}

static options_t parse(int argc, char **argv) {
    options_t options;
    for (int i = 1; i < argc; i++) {
        std::string name = argv[i];
        if (name == "--mutants") {
            options.mutants = true;
            continue;
        }
        if (++i >= argc) usage(argv[0], (name + " wants a value").c_str());
        std::string value = argv[i];
        if (name == "--mode" && (value == "weak" || value == "race" || value == "asan"))
            options.mode = value;
        else if (name == "--case" && find_case(value) != nullptr)
            options.only = value;
        else if (name == "--seed" && atoi(argv[i]) > 0)
            options.seed = atoi(argv[i]);
        else if (name == "--seeds" && atoi(argv[i]) > 0)
            options.seeds = atoi(argv[i]);
        else if (name == "--fault")
            for (const fault_t &fault : faults)
                if (value == fault.name) options.fault = &fault;
        if (name == "--fault" ? options.fault == nullptr
                              : name != "--mode" && name != "--case" && name != "--seed" && name != "--seeds")
            usage(argv[0], (name + " " + value + "?").c_str());
    }
    if (options.mode.empty()) usage(argv[0], "--mode is wanted");
    return options;
}

int main(int argc, char **argv) {
    options_t options = parse(argc, argv);
    setvbuf(stdout, nullptr, _IOLBF, 0);
    if (options.mutants) return run_mutants(options);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_set_death_callback(print_replay);
#endif
    if (options.fault != nullptr) tpc_planted_fault = options.fault->fault;
    for (int i = 0; i < case_count; i++)
        if ((options.only.empty() || options.only == cases[i].name) && run_case(options, cases[i], argv[0]) != 0)
            return 1;
    return 0;
}
