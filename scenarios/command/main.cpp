/// The `kvfence` command: CLI11 wiring only. What a subcommand does stands in <name>_command.cpp.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/core/line.h"
#include "scenarios/command/commands.h"
#include "scenarios/command/exit_code.h"
#include "scenarios/command/output.h"

namespace {

using namespace kvfence;

constexpr const char* kExitCodes =
    "exit codes: 0 agree, 1 disagreement, 2 bad input, 77 cannot run here";

void add_output(CLI::App* command, OutputOptions& output, bool junit) {
  command->add_flag("--json", output.json, "print one JSON object as the last line");
  command->add_flag("--quiet", output.quiet, "no progress on stderr");
  if (junit)
    command->add_option("--junit", output.junit_file, "write a JUnit XML file")->type_name("FILE");
}

void add_subject(CLI::App* command, Subject& subject) {
  auto* planted = command
                      ->add_option("--planted-bug", subject.planted_bug,
                                   "test the optimized implementation with this mistake in it")
                      ->type_name("NAME");
  auto* sut =
      command
          ->add_option("--sut", subject.sut_command,
                       "test a child process that speaks the line protocol, started with this "
                       "shell command")
          ->type_name("CMD");
  auto* library =
      command
          ->add_option("--connector-library", subject.connector_library,
                       "with --target engine: test the connectors of this shared library, of any "
                       "kind, behind the optimized scheduler")
          ->type_name("FILE");
  planted->excludes(sut);
  planted->excludes(library);
  sut->excludes(library);
  command
      ->add_option("--timeout", subject.timeout_seconds,
                   "seconds of silence that count as a dead child")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

/// `key=value ...` as it would stand on a config line; false (said on stderr) if it is malformed.
bool parse_overrides(const std::vector<std::string>& texts, std::vector<Field>& overrides) {
  for (const std::string& text : texts) {
    const Parsed<Line> line = parse_line("config " + text, "--config");
    if (!line || !line->subject.empty() || line->expectation || line->fields.empty()) {
      bad_input(line ? "--config: found '" + text + "', expected key=value"
                     : line.error().to_text());
      return false;
    }
    overrides.insert(overrides.end(), line->fields.begin(), line->fields.end());
  }
  return true;
}

/// What `replay` is told. Returns what is wrong with a combination of options; empty for nothing.
class ReplayCommandLine {
 public:
  ReplayCommandLine(CLI::App* command, ReplayCommandOptions& options)
      : command_(command), options_(options) {
    command->add_option("FILE", options.file, "a request trace")->required();
    command->add_option("--format", options.format, "of the trace")
        ->check(CLI::IsMember({"mooncake"}))
        ->capture_default_str();
    command->add_option("--target", options.target, "what the traffic goes through")
        ->check(CLI::IsMember({kBlockPool, kScheduler, kOffload, kEngine}))
        ->capture_default_str();
    gpu_blocks_ = command
                      ->add_option("--gpu-blocks", options.gpu_blocks,
                                   "blocks of the pool, with the null block")
                      ->check(CLI::PositiveNumber)
                      ->default_str("10000; 65536 for scheduler, 2048 for offload, 512 for engine");
    auto* only = command->add_option("--only", options.only, "one side alone, for figures")
                     ->check(CLI::IsMember({"reference", "optimized"}));
    command
        ->add_flag(
            "--lockstep", options.lockstep,
            "reference and optimized side by side (block_pool: unless --only; else optimized "
            "alone is the default)")
        ->excludes(only);
    command
        ->add_option("--state-every", options.state_every,
                     "compare the whole state after every n-th command or step (numbers and "
                     "answers always)")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    // The last one counts, so that a line that reproduces a failure can be a line with an addition.
    command->add_option("--requests", options.requests_max, "replay the first ones only")
        ->check(CLI::PositiveNumber)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    command
        ->add_option("--csv", options.csv_file,
                     "write the figures over time (or the curve; of engine: of each request)")
        ->type_name("FILE");
    of_some_targets_.emplace_back(
        command->add_option("--svg", options.svg_file, "draw them")->type_name("FILE"),
        Targets{kBlockPool, kScheduler, kOffload});
    command
        ->add_option("--planted-bug", options.subject.planted_bug,
                     "test the optimized implementation with this mistake in it")
        ->type_name("NAME");
    add_output(command, options.output, /*junit=*/true);
    add_pool_options();
    add_scheduler_options();
    add_offload_options();
    add_engine_options();
  }

  /// To be called when the line was read. False (said on stderr): an option of another target.
  bool finish() {
    for (const auto& [option, targets] : of_some_targets_) {
      const bool fits = std::find(targets.begin(), targets.end(), options_.target) != targets.end();
      if (fits || option->count() == 0) continue;
      bad_input(option->get_name() + ": not with --target " + options_.target);
      return false;
    }
    SchedulerReplayOptions& scheduler = options_.scheduler;
    OffloadReplayOptions& offload = options_.offload;
    EngineReplayOptions& engine = options_.engine;
    if (gpu_blocks_->count() > 0) {
      scheduler.gpu_blocks = offload.gpu_blocks = engine.gpu_blocks = options_.gpu_blocks;
    }
    scheduler.requests_max = offload.requests_max = engine.requests_max = options_.requests_max;
    scheduler.profile = offload.profile = engine.profile = profile_;
    offload.concurrency = engine.concurrency = options_.concurrency;
    offload.state_every = engine.state_every = options_.state_every;
    engine.block_size = scheduler.block_size;
    engine.async_scheduling = scheduler.async_scheduling;
    if (max_num_batched_tokens_->count() > 0) {
      engine.max_num_batched_tokens = scheduler.max_num_batched_tokens;
    }
    if (options_.target == kEngine && cpu_blocks_->count() > 0) {
      if (offload.cpu_blocks.size() != 1) {
        bad_input("--cpu-blocks: found several capacities, expected one with --target engine");
        return false;
      }
      engine.cpu_blocks = offload.cpu_blocks.front();
    }
    if (!options_.subject.planted_bug.empty()) options_.lockstep = true;
    return true;
  }

 private:
  static constexpr const char* kBlockPool = kReplayBlockPool;
  static constexpr const char* kScheduler = kReplayScheduler;
  static constexpr const char* kOffload = kReplayOffload;
  static constexpr const char* kEngine = kReplayEngine;
  using Targets = std::vector<std::string>;

  CLI::Option* only_with(const Targets& targets, CLI::Option* option) {
    std::string group = "With --target";
    for (const std::string& target : targets) {
      group += (&target == &targets.front() ? " " : " or ") + target;
    }
    of_some_targets_.emplace_back(option, targets);
    return option->group(group);
  }

  template <class Member>
  CLI::Option* add(const Targets& targets, const char* name, Member& member, const char* doc) {
    return only_with(targets, command_->add_option(name, member, doc));
  }

  void add_pool_options() {
    add({kBlockPool, kOffload, kEngine}, "--concurrency", options_.concurrency,
        "requests that hold their blocks at a time; of engine: that are unfinished")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    add({kBlockPool}, "--curve", options_.curve, "the hit rate at each of these pool sizes instead")
        ->delimiter(',')
        ->check(CLI::PositiveNumber)
        ->type_name("N,N,...");
    add({kBlockPool, kOffload, kEngine}, "--out", options_.out_folder,
        "where the scenario of a failure is written")
        ->type_name("FOLDER")
        ->capture_default_str();
  }

  void add_scheduler_options() {
    SchedulerReplayOptions& scheduler = options_.scheduler;
    const auto number = [&](const char* name, std::uint32_t& member, const char* doc) {
      return add({kScheduler}, name, member, doc)->capture_default_str();
    };
    const auto positive = [&](const char* name, std::uint32_t& member, const char* doc) {
      return number(name, member, doc)->check(CLI::PositiveNumber);
    };
    add({kScheduler, kEngine}, "--block-size", scheduler.block_size,
        "tokens of a block; of engine: that a hash id stands for, 32 at most")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    positive("--max-num-seqs", scheduler.max_num_seqs, "requests that run at once");
    max_num_batched_tokens_ = add({kScheduler, kEngine}, "--max-num-batched-tokens",
                                  scheduler.max_num_batched_tokens, "tokens a step")
                                  ->check(CLI::PositiveNumber)
                                  ->default_str("8192; 512 for engine");
    number("--max-model-len", scheduler.max_model_len,
           "tokens of a request; 0: of the longest one");
    number("--long-prefill-token-threshold", scheduler.long_prefill_token_threshold,
           "tokens of a request a step; 0: no bound");
    add({kScheduler}, "--policy", policy_, "who goes first")
        ->check(CLI::IsMember({"fcfs", "priority"}))
        ->capture_default_str()
        ->each([&](const std::string& text) {
          scheduler.policy = *scheduling_policy_from_text(text);
        });
    positive("--priorities", scheduler.num_priorities,
             "with priority: the n-th request of the trace, from 0, has priority n modulo this");
    only_with({kScheduler, kEngine},
              command_->add_flag("--async", scheduler.async_scheduling, "plan a step ahead"));
    number("--spec", scheduler.num_speculative_tokens, "drafts a request and step");
    add({kScheduler}, "--accept", scheduler.accepted,
        "how many are accepted of the first list of drafts, of the second, ..., and from the start "
        "again; all without it")
        ->delimiter(',')
        ->type_name("N,N,...");
    positive("--trace-block-tokens", scheduler.block_tokens, "prompt tokens of a hash id");
    number("--step-us", scheduler.step_us, "simulated microseconds of a step");
    number("--token-ns", scheduler.token_ns, "and nanoseconds of each of its tokens");
    number("--interval-ms", scheduler.interval_ms,
           "of the figures over time; 0: a 200th of the trace, at least 100");
    add({kScheduler}, "--hash-algorithm", scheduler.hash_algorithm, "of block hashes")
        ->check(CLI::IsMember({"sha256_cbor", "xxhash_cbor"}))
        ->capture_default_str();
    add({kScheduler, kOffload, kEngine}, "--profile", profile_, "whose rules")
        ->check(CLI::IsMember({"v0.19", "v0.23"}))
        ->capture_default_str();
  }

  void add_offload_options() {
    OffloadReplayOptions& offload = options_.offload;
    cpu_blocks_ = add({kOffload, kEngine}, "--cpu-blocks", offload.cpu_blocks,
                      "capacities of the CPU tier; of engine: the one")
                      ->delimiter(',')
                      ->check(CLI::PositiveNumber)
                      ->type_name("N,N,...")
                      ->default_str("1000,2000,5000,...,200000; 4096 for engine");
    add({kOffload}, "--policies", offload.policies, "what the CPU tier evicts by")
        ->delimiter(',')
        ->check(CLI::IsMember({"lru", "arc"}))
        ->type_name("NAME,NAME")
        ->default_str("lru,arc");
    add({kOffload}, "--store-threshold", offload.store_threshold,
        "lookups of a block before it may be stored; below 2: no filter")
        ->capture_default_str();
  }

  void add_engine_options() {
    add({kEngine}, "--transfers-a-step", options_.engine.transfers_a_step,
        "that the device runs in each direction, at most")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
  }

  CLI::App* command_;
  ReplayCommandOptions& options_;
  CLI::Option* gpu_blocks_ = nullptr;
  CLI::Option* cpu_blocks_ = nullptr;
  CLI::Option* max_num_batched_tokens_ = nullptr;
  std::vector<std::pair<CLI::Option*, Targets>> of_some_targets_;
  std::string policy_ = "fcfs";
  std::string profile_ = "v0.19";
};

/// The command line behind the subcommand, ready to be typed again.
std::string arguments_behind_subcommand(int argc, char** argv) {
  std::string text;
  for (int k = 2; k < argc; ++k) {
    const std::string_view argument = argv[k];
    const bool is_plain = argument.find_first_of(" \t'\"\\$*?&|;<>()`") == argument.npos;
    if (k > 2) text += ' ';
    text += is_plain ? std::string(argument) : "'" + std::string(argument) + "'";
  }
  return text;
}

int run(int argc, char** argv) {
  CLI::App app{
      "kvfence checks KV-cache managers, command by command: a simple reference against an "
      "optimized "
      "implementation, against a planted bug, or against yours.",
      "kvfence"};
  app.require_subcommand(1);
  app.set_version_flag("--version", "kvfence " KVFENCE_VERSION);
  app.footer(kExitCodes);
  int exit_code = exit_code::kAgree;

  RunCommandOptions run_options;
  CLI::App* run_app =
      app.add_subcommand("run", "run scenarios and traces (.kvs) against the reference");
  run_app->add_option("FILE", run_options.paths, "scenario files, or folders of them")->required();
  std::size_t until = 0;
  auto* until_option = run_app->add_option("--until", until, "stop behind that many commands");
  run_app->add_flag_callback(
      "--no-shrink", [&] { run_options.shrink = false; }, "report a failure as it was found");
  add_subject(run_app, run_options.subject);
  add_output(run_app, run_options.output, /*junit=*/true);
  run_app->callback([&] {
    if (until_option->count() > 0) run_options.until = until;
    exit_code = run_command(run_options);
  });

  CheckCommandOptions check_options;
  PlantedBugsCommandOptions bugs_options;
  std::vector<std::string> check_config;
  double seconds = 10;
  std::uint64_t episode = 0;
  bool all_planted_bugs = false;
  CLI::App* check_app = app.add_subcommand("check", "random interleavings against the reference");
  check_app->add_option("--target", check_options.target, "what to check; see kvfence list")
      ->required();
  auto* seconds_option =
      check_app->add_option("--seconds", seconds, "stop after that long (10 if no bound is given)")
          ->check(CLI::PositiveNumber);
  auto* commands_option = check_app
                              ->add_option("--commands", check_options.check.commands_max,
                                           "stop after that many commands")
                              ->check(CLI::PositiveNumber);
  check_app
      ->add_option("--seed", check_options.check.seed, "decides every configuration and command")
      ->capture_default_str();
  auto* episode_option =
      check_app->add_option("--episode", episode, "run this episode of the seed alone");
  check_app
      ->add_option("--episode-commands", check_options.check.episode_commands,
                   "commands on one pool before a fresh one")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  check_app
      ->add_option("--config", check_config,
                   "what every configuration has to have, e.g. profile=v0.19; of target engine "
                   "e.g. assembly=offloading offloading.eviction_policy=arc")
      ->type_name("KEY=VALUE");
  check_app->add_flag_callback(
      "--no-shrink", [&] { check_options.check.shrink = false; },
      "report a failure as it was found");
  check_app->add_option("--out", check_options.out_folder, "where a failing episode is written")
      ->type_name("FOLDER")
      ->capture_default_str();
  check_app->add_flag("--planted-bugs", all_planted_bugs,
                      "run every planted bug, or those of a pinned assembly, and print by whom "
                      "and how fast it is caught");
  check_app->add_option("--seeds", bugs_options.num_seeds, "with --planted-bugs: seeds a bug")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  check_app->add_flag("--markdown", bugs_options.markdown,
                      "with --planted-bugs: the table as Markdown");
  add_subject(check_app, check_options.check.subject);
  add_output(check_app, check_options.output, /*junit=*/true);
  check_app->callback([&] {
    if (!parse_overrides(check_config, check_options.check.config_overrides)) {
      exit_code = exit_code::kBadInput;
      return;
    }
    if (all_planted_bugs) {
      bugs_options.target = check_options.target;
      bugs_options.config_overrides = check_options.check.config_overrides;
      bugs_options.seed = check_options.check.seed;
      bugs_options.output = check_options.output;
      if (commands_option->count() > 0)
        bugs_options.commands_max = check_options.check.commands_max;
      exit_code = planted_bugs_command(bugs_options);
      return;
    }
    if (episode_option->count() > 0) check_options.check.episode = episode;
    const bool bounded = commands_option->count() > 0 || episode_option->count() > 0;
    if (seconds_option->count() > 0 || !bounded) check_options.seconds_max = seconds;
    exit_code = check_command(check_options);
  });

  ReplayCommandOptions replay_options;
  CLI::App* replay_app = app.add_subcommand(
      "replay",
      "recorded production traffic through the pool, the scheduler, two tiers or an engine");
  ReplayCommandLine replay_line(replay_app, replay_options);
  replay_app->callback([&] {
    replay_options.arguments = arguments_behind_subcommand(argc, argv);
    exit_code = replay_line.finish() ? replay_command(replay_options) : exit_code::kBadInput;
  });

  ShrinkCommandOptions shrink_options;
  CLI::App* shrink_app = app.add_subcommand("shrink", "make a failing scenario small");
  shrink_app->add_option("FILE", shrink_options.file, "a scenario that fails")->required();
  shrink_app
      ->add_option("--out", shrink_options.out_file, "where to write it (FILE with .shrunk.kvs)")
      ->type_name("FILE");
  add_subject(shrink_app, shrink_options.subject);
  add_output(shrink_app, shrink_options.output, /*junit=*/false);
  shrink_app->callback([&] { exit_code = shrink_command(shrink_options); });

  RecordCommandOptions record_options;
  std::vector<std::string> record_config;
  CLI::App* record_app =
      app.add_subcommand("record", "write down what an implementation answers, as traces");
  record_app->add_option("FILE", record_options.scenario_file,
                         "answer these commands (random episodes without it)");
  record_app->add_option("--target", record_options.target, "of random episodes")
      ->default_str("block_pool");
  record_options.target = "block_pool";
  record_app->add_option("--out", record_options.out, "a file; for random episodes a folder");
  record_app->add_option("--seed", record_options.record.seed, "of random episodes")
      ->capture_default_str();
  record_app->add_option("--episodes", record_options.record.episodes, "how many")
      ->capture_default_str();
  record_app
      ->add_option("--episode-commands", record_options.record.episode_commands, "commands each")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  record_app->add_option("--config", record_config, "what every configuration has to have")
      ->type_name("KEY=VALUE");
  add_subject(record_app, record_options.record.subject);
  add_output(record_app, record_options.output, /*junit=*/false);
  record_app->callback([&] {
    exit_code = parse_overrides(record_config, record_options.record.config_overrides)
                    ? record_command(record_options)
                    : exit_code::kBadInput;
  });

  ListCommandOptions list_options;
  CLI::App* list_app = app.add_subcommand("list", "what there is, by name");
  list_app
      ->add_option("WHAT", list_options.what,
                   "targets, commands, invariants, goals, planted-bugs, rules, devices")
      ->check(CLI::IsMember(
          {"targets", "commands", "invariants", "goals", "planted-bugs", "rules", "devices"}))
      ->capture_default_str();
  list_app->add_option("--target", list_options.target, "of this target alone");
  add_output(list_app, list_options.output, /*junit=*/false);
  list_app->callback([&] { exit_code = list_command(list_options); });

  ExplainCommandOptions explain_options;
  CLI::App* explain_app =
      app.add_subcommand("explain", "tell the story of a scenario, step by step");
  explain_app->add_option("FILE", explain_options.file, "a scenario")->required();
  explain_app
      ->add_option("--html", explain_options.html_file, "write what the device did as a page")
      ->type_name("OUT");
  explain_app
      ->add_option("--trace", explain_options.trace_file,
                   "write what the device did for chrome://tracing or Perfetto")
      ->type_name("OUT");
  add_subject(explain_app, explain_options.subject);
  explain_app->callback([&] { exit_code = explain_command(explain_options); });

  std::string serve_target;
  std::string serve_bug;
  bool serve_reference = false;
  CLI::App* serve_app = app.add_subcommand(
      "serve", "be the child of the line protocol: answer commands from stdin on stdout");
  serve_app->add_option("--target", serve_target, "what to serve")->required();
  serve_app->add_option("--planted-bug", serve_bug, "with this mistake")->type_name("NAME");
  serve_app->add_flag("--reference", serve_reference, "the reference instead of the optimized one");
  serve_app->callback([&] {
    const auto target = tools_of(serve_target, "--target");
    exit_code = target ? (*target)->serve(serve_bug, serve_reference) : bad_input(target.error());
  });

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // CLI11 has a code of its own for each mistake; --help and --version are none.
    return app.exit(error) == 0 ? exit_code::kAgree : exit_code::kBadInput;
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kvfence: %s\n", error.what());
    return kvfence::exit_code::kBadInput;
  }
}
