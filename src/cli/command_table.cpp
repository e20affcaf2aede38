#include "cli/command_table.h"

#include <array>

namespace tensor_fusion::cli {
namespace {

using enum OptionKind;

constexpr std::string_view kGpuHelp =
    "use this GPU: its index, or its UUID or the beginning of it; may be given more than once";

constexpr std::array kGlobal{
    Option{"state", '\0', kValue, "FOLDER",
           "the state directory of the hypervisor to talk to (`TENSOR_FUSION_STATE` unless said)", Offer::kFiles},
    Option{"output", 'o', kValue, "FORMAT",
           "`table` for people (the default) or `json` for programs (its keys: `docs/reference/json.md`)",
           Offer::kWords, "table json"},
    Option{"help", 'h', kFlag, "", "show the help of a command"},
};

constexpr std::array kRunOptions{
    Option{"vram", 'm', kValue, "SIZE", "memory limit on each GPU: `8Gi`, `8G`, `512Mi`, or a part of the card, `50%`"},
    Option{"compute", 'c', kValue, "SHARE",
           "the most compute the slice may use on each GPU: `40%` of the card's time, or `20tflops`"},
    Option{"compute-request", 'r', kValue, "SHARE",
           "the compute the slice is certain to get when it wants it; between this and `--compute` it is lent"},
    Option{"gpu", 'g', kRepeated, "GPU", kGpuHelp, Offer::kDevices},
    Option{"gpus", 'n', kValue, "N", "the number of different GPUs, each cut to the same limits (1 unless said)"},
    Option{
        "qos", 'q', kValue, "CLASS",
        "who is let onto the card at once, within the compute that is certain, when it wakes up: `high` and `critical`",
        Offer::kWords, "low medium high critical"},
    Option{"name", '\0', kValue, "NAME", "name of the slice, unique on this machine; made up when left out"},
    Option{
        "wait", 'w', kFlag, "",
        "wait in line until the slice fits, instead of failing; says what for, and again when that changes for longer"},
    Option{"env", 'e', kRepeated, "NAME=VALUE", "set a variable for the program; `NAME` alone removes it"},
    Option{"detach", 'd', kFlag, "",
           "start the program in the background, keep its output for `tensor-fusion logs`, and print its name"},
    Option{"no-namespace", '\0', kFlag, "",
           "do not make a mount namespace: limit through `LD_PRELOAD` only, which a child can take off"},
    Option{"keep-capabilities", '\0', kFlag, "",
           "leave a program of root the rights to mount, trace and make devices, with which it can undo its limits"},
    Option{"allow-unlimited", '\0', kFlag, "",
           "run the program, and what it starts, even where the limiter cannot hold it (a static or musl binary); it "
           "is then "
           "only watched"},
};
constexpr std::array kRunExamples{
    Example{"tensor-fusion run --vram 2Gi --compute 30% -- python train.py",
            "a slice of 2 GiB and 30 % of the time of the card that fits best"},
    Example{"tensor-fusion run --vram 50% --compute-request 20% --compute 100% -- ./serve",
            "at least 20 % of a card, all of it while nobody else wants it"},
    Example{"tensor-fusion run --gpus 2 --vram 16Gi --compute 50% --wait -- torchrun train.py",
            "half of two cards, waiting in line when they are taken"},
    Example{"tensor-fusion run -d --name night --vram 4Gi -- python sweep.py",
            "in the background; `tensor-fusion logs night` shows what it prints"},
};

constexpr std::array kPsOptions{
    Option{"names", '\0', kFlag, "", "print only the names, a line each, and nothing when there are none"},
};

constexpr std::array kTopOptions{
    Option{"once", '1', kFlag, "", "print the table once and end"},
    Option{"interval", 'i', kValue, "SECONDS", "time between two pictures (1 unless said; 0.2 to 60)"},
};

constexpr std::array kLimitOptions{
    Option{"vram", 'm', kValue, "SIZE", "new memory limit; memory already held above it stays, new allocations fail"},
    Option{"compute", 'c', kValue, "SHARE", "new cap on compute"},
    Option{"compute-request", 'r', kValue, "SHARE", "new certain compute"},
};
constexpr std::array kLimitExamples{
    Example{"tensor-fusion limit night --compute 60%", "let the running slice `night` use more of its card"},
};

constexpr std::array kKillOptions{
    Option{"signal", 's', kValue, "SIGNAL", "which signal: a name (`INT`) or a number (`TERM` unless said)",
           Offer::kWords, "TERM KILL INT HUP QUIT USR1 USR2 STOP CONT"},
};

constexpr std::array kLogsOptions{
    Option{"follow", 'f', kFlag, "", "keep printing what is added, until the slice ends"},
    Option{"tail", 't', kValue, "LINES", "only the last lines"},
};

constexpr std::array kEventsOptions{
    Option{"slice", 's', kValue, "NAME", "only those of this slice", Offer::kSlices},
    Option{"tail", 't', kValue, "LINES", "only the last ones"},
};

constexpr std::array kBenchOptions{
    Option{"list", 'l', kFlag, "", "name the benchmarks and end"},
};

constexpr std::array kHypervisorOptions{
    Option{"foreground", 'f', kFlag, "", "stay in the foreground (what systemd wants); this is also the default"},
    Option{"idle-exit", '\0', kFlag, "", "end by itself when no slice has been left for a while; `run` starts it so"},
    Option{"accelerator-lib", '\0', kValue, "FILE",
           "a vendor's provider library instead of the built-in one for NVIDIA", Offer::kFiles},
    Option{"slices-per-user", '\0', kValue, "N",
           "the most slices that one user other than root and its own may have (64 unless said)"},
    Option{"stop", '\0', kFlag, "", "ask the running hypervisor to end; slices keep their last limits"},
};

constexpr std::array kHelpOptions{
    Option{"man", '\0', kFlag, "", "print the manual page (roff), for `man -l -`"},
    Option{"markdown", '\0', kFlag, "", "print the reference page (Markdown)"},
};

constexpr std::span<const Option> kNoOptions{};
constexpr std::span<const Example> kNoExamples{};

constexpr std::array kCommands{
    Command{
        "run", "[OPTION…] [--] PROGRAM [ARGUMENT…]", "run a program in a slice of a GPU",
        "Asks the hypervisor for a slice (and starts a hypervisor when none is running), then becomes PROGRAM. The "
        "program keeps its terminal, its standard streams, its signals and its exit code: nothing stands between.\n"
        "\n"
        "`--compute 40%` alone is both what the slice is certain of and the most it gets. `--compute-request 40%` "
        "alone is certain of 40 % and may borrow the whole card. Without either, the slice is certain of nothing "
        "and may use what others leave. Without `--vram` it may use all the memory of its share of the card: "
        "see the guide, `docs/guide/requests.md`.\n"
        "\n"
        "As root, or where the kernel lets users make user namespaces, the program gets a private view of a few "
        "files: `/etc/ld.so.preload` with the limiter added, its own pages at `/run/tensor-fusion/slice`, and GPUs "
        "that were not granted cannot be opened. A program of root gives up the rights to undo that view, as in a "
        "container, unless `--keep-capabilities` is given. Elsewhere the limiter is loaded through `LD_PRELOAD`, and a "
        "notice says so.",
        kRunOptions, kRunExamples, 1, ~0u, true, Offer::kPrograms},
    Command{
        "ps", "[OPTION…] [NAME…]", "list slices: their limits and what they use",
        "COMPUTE and MEMORY are what a slice uses and, after the slash, its limit. `5%/20%-60%` uses 5 % of the card's "
        "time, is certain of 20 % and gets at most 60 %. Shares are over the last second, as measured by the "
        "hypervisor, or over a few turns where a program's turns on the card are longer. PROCS is the number of its "
        "processes that use a GPU, AGE the time since it was placed, and ALARM "
        "what is wrong with it: the guide's page on troubleshooting explains each. Below the table stand processes "
        "that "
        "use a GPU without a slice, and those of a slice that use one without its limiter.",
        kPsOptions, kNoExamples, 0, ~0u, false, Offer::kSlices},
    Command{
        "top", "[OPTION…]", "watch devices and slices live",
        "Keys: q ends, arrows or j and k choose a slice, s changes the order, p pauses. Ctrl-C ends it as well, which "
        "a shell shows as 130.",
        kTopOptions, kNoExamples, 0, 0},
    Command{
        "devices", "", "list GPUs: what is free, granted and used",
        "MEMORY is used, of all there is. RESERVED is the memory promised to slices, REQUESTED the compute they are "
        "certain of, LIMITS the sum of the most they may use, which may pass 100 %. BUSY is how much of the last "
        "moment the card worked.",
        kNoOptions, kNoExamples, 0, 0},
    Command{"limit", "NAME [OPTION…]", "change the limits of a running slice",
            "Takes effect at once, without restarting the program. What is left out stays as it is.", kLimitOptions,
            kLimitExamples, 1, 1, false, Offer::kSlices},
    Command{
        "kill", "NAME… [OPTION…]", "send a signal to all processes of a slice",
        "After a signal that is to end them (`TERM`, `KILL`, `INT`, `QUIT`) it waits up to two seconds until they have "
        "ended, and then until the slice's name, memory and compute are free again, which is soon and takes ten "
        "seconds at most. When some still run it names them and ends with 1: they may be busy with their end, or not "
        "end by themselves.",
        kKillOptions, kNoExamples, 1, ~0u, false, Offer::kSlices},
    Command{"logs", "NAME [OPTION…]", "show the output of a slice started with `run --detach`", "", kLogsOptions,
            kNoExamples, 1, 1, false, Offer::kSlices},
    Command{"events", "[OPTION…]", "list what happened: slices, limits, alarms", "", kEventsOptions, kNoExamples, 0, 0},
    Command{"doctor", "[PROGRAM]", "say what would stop slices from working here, and what to do",
            "Ends with 0 when nothing would, with 1 when something would, and with 2 only where the command line means "
            "nothing. Inside a slice it says which, and looks only at what the programs of that slice need. With "
            "PROGRAM it also says whether that program can be limited.",
            kNoOptions, kNoExamples, 0, 1, false, Offer::kPrograms},
    Command{
        "bench", "[NAME…]", "measure what slices do on this machine's own card",
        "Without NAME it measures `card`: shares, memory limits and what calls cost, of programs on the first card of "
        "this machine, directly and by `tensor-fusion run`; it takes a minute, in which nothing else should use the "
        "card. The others measure one part closer, on simulated cards that they bring: `limiter`, `share`, `memory`, "
        "`start` and `hypervisor`. Each says what it found and ends with 1 where it missed what was promised. In "
        "`card` a line is what was measured and its unit, the figure, and what was promised; of calls there are three "
        "figures: without a slice, in one without limits, and in one of 50 % compute.",
        kBenchOptions, kNoExamples, 0, ~0u, false, Offer::kWords, "card limiter share memory start hypervisor"},
    Command{"hypervisor", "[OPTION…]", "run the daemon that owns the limits of this machine",
            "`run` starts one when it is needed; a systemd unit can own it instead. Where there is no GPU yet, or no "
            "driver, it "
            "says so once and waits for one; a provider library that cannot be loaded ends it with 19.",
            kHypervisorOptions, kNoExamples, 0, 0},
    Command{"version", "", "print the version", "", kNoOptions, kNoExamples, 0, 0},
    Command{"completion", "SHELL", "print the completion script for bash, zsh or fish",
            "For bash: `source <(tensor-fusion completion bash)`.", kNoOptions, kNoExamples, 1, 1, false, Offer::kWords,
            "bash zsh fish"},
    Command{"help", "[COMMAND]", "show help", "", kHelpOptions, kNoExamples, 0, 1},
};

constexpr std::array kExitCodes{
    ExitCodeRow{kExitOk, "done", false},
    ExitCodeRow{kExitProblem,
                "something failed that should not; for `doctor` and `bench`: something was found wanting; "
                "for `kill`: the slice is not over",
                true},
    ExitCodeRow{kExitUsage, "the command line, or a value in it, means nothing; nothing was done", false},
    ExitCodeRow{10, "the slice would fit this machine, but not now (`run --wait` waits)", true},
    ExitCodeRow{11, "the request can never be met here: it is larger than the card", true},
    ExitCodeRow{12,
                "no slice (or benchmark, or state directory) of that name, or nothing was kept for it; `hypervisor "
                "--stop`: none runs",
                true},
    ExitCodeRow{13, "a slice of that name exists already", true},
    ExitCodeRow{14, "another hypervisor already runs on this state directory", true},
    ExitCodeRow{15, "not allowed: another user's slice or hypervisor, or a file that may not be opened", true},
    ExitCodeRow{16, "the state directory is full", true},
    ExitCodeRow{17, "the state directory cannot be written", true},
    ExitCodeRow{18, "the hypervisor does not answer, and none could be started", true},
    ExitCodeRow{19, "no GPU, or no driver for it, or only GPUs that are lost or broken could take the slice", true},
    ExitCodeRow{20, "the hypervisor is of a version this program does not understand", true},
    ExitCodeRow{
        kExitCannotLimit,
        "the program cannot be limited (static, musl, 32-bit, old glibc, limiter missing), so it was not started",
        true},
    ExitCodeRow{kExitNotExecutable, "`run`: the program was found but cannot be executed", false},
    ExitCodeRow{kExitNoProgram, "`run`: the program was not found", false},
};

constexpr std::array kVariables{
    Variable{"TENSOR_FUSION_STATE",
             "where the hypervisor keeps its state and its socket, for a hypervisor beside the machine's own"},
    Variable{"TENSOR_FUSION_LIMITER", "the limiter library to use instead of the one installed with this program"},
    Variable{"TENSOR_FUSION_SIM",
             "the simulated machine to use: `2xh100`, `h100,2xt4` or the path of a YAML file; kept for the program"},
    Variable{
        "TENSOR_FUSION_SIM_DIR",
        "the directory of the simulated machine (`/dev/shm/tensor-fusion-sim-` and the user's number unless said)"},
    Variable{"TENSOR_FUSION_SIM_FAULT",
             "calls of the simulated driver that fail: the guide's page on the simulated GPU has the rules"},
    Variable{"TENSOR_FUSION_LIMITER_LOG", "lets the limiter in a program explain itself on standard error"},
    Variable{"CUDA_VISIBLE_DEVICES",
             "set by `run` to the cards of the slice, whatever it was; inside a slice it chooses among them"},
    Variable{"TENSOR_FUSION_SLICE", "set by `run` where it cannot make a mount namespace: the slice's directory"},
    Variable{"NO_COLOR", "no colours, when set to anything"},
    Variable{"COLUMNS", "how wide a table may be where the output is no terminal (as wide as it needs unless said)"},
};

}  // namespace

std::span<const Command> commands() { return kCommands; }
std::span<const Option> global_options() { return kGlobal; }
std::span<const ExitCodeRow> exit_codes() { return kExitCodes; }
std::span<const Variable> environment_variables() { return kVariables; }

const Command* find_command(std::string_view name) {
  for (const Command& command : kCommands) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

}  // namespace tensor_fusion::cli
