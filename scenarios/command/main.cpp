/// The `kvfence` command: CLI11 wiring only. The subcommands are in <name>_command.cpp.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "contract/core/joined.h"
#include "contract/core/line.h"
#include "contract/core/lists.h"
#include "contract/core/words.h"
#include "properties/core/run_check.h"
#include "scenarios/command/commands.h"
#include "scenarios/command/contained_run.h"
#include "scenarios/command/help_pages.h"
#include "scenarios/command/option_checks.h"
#include "scenarios/command/output.h"
#include "scenarios/command/shell_word.h"

namespace {

using namespace kvfence;

constexpr const char* kExitCodes =
    "exit codes: 0 agree, 1 disagreement, 2 bad input, 77 cannot run here";

/// More than any machine has.
constexpr std::uint64_t kMemoryMibMax = std::uint64_t{1} << 24;

/// More processes than any machine has cores.
constexpr std::uint32_t kJobsMax = 1024;
/// Draft tokens per request and step: each takes memory.
constexpr std::uint32_t kDraftsMax = 1024;

using Targets = std::vector<std::string>;

/// Throws BadInput if one of the options was given.
void expect_none_of(const CLI::App& command, const std::vector<const char*>& options,
                    const std::string& where) {
  for (const char* name : options) {
    if (command.count(name) > 0) throw BadInput(std::string(name) + ": not " + where);
  }
}

/// Adds options to a subcommand.
class Options {
 public:
  /// Options of some targets only, with these targets.
  using Restricted = std::vector<std::pair<CLI::Option*, Targets>>;

  explicit Options(CLI::App* app) : app_(app) {}
  CLI::App* app() const { return app_; }
  /// The same where options are for some targets alone; `all` receives them.
  Options(CLI::App* app, Targets targets, Restricted& all)
      : app_(app), targets_(std::move(targets)), all_(&all) {}

  template <class Member>
  CLI::Option* value(const char* name, Member& member, const char* doc,
                     const char* type = nullptr) const {
    CLI::Option* const option = added(app_->add_option(name, member, doc));
    if constexpr (kIsNumber<Member>) option->check(fits<Member>());
    return type != nullptr ? option->type_name(type) : option;
  }
  /// A file, or whatever else has a name.
  template <class Member>
  CLI::Option* named(const char* name, Member& member, const char* doc, const char* type) const {
    return value(name, member, doc, type)->check(not_empty());
  }
  /// Shown with its default.
  template <class Member>
  CLI::Option* with_default(const char* name, Member& member, const char* doc,
                            const char* type = nullptr) const {
    return value(name, member, doc, type)->capture_default_str();
  }
  template <class Member>
  CLI::Option* positive(const char* name, Member& member, const char* doc) const {
    return with_default(name, member, doc)->check(positive_number());
  }
  /// N,N,...
  template <class Member>
  CLI::Option* list(const char* name, Member& member, const char* doc, const char* type) const {
    return value(name, member, doc, type)->delimiter(',');
  }
  template <class Member>
  CLI::Option* one_of(const char* name, Member& member, const char* doc,
                      const std::vector<std::string>& names) const {
    return with_default(name, member, doc)->check(CLI::IsMember(names));
  }
  /// A word of an enumeration.
  template <Worded E>
  CLI::Option* one_of(const char* name, E& member, const char* doc) const {
    const auto& words = kvfence::detail::kWords<E>;
    const auto read = [&member](const std::string& word) { member = *from_text<E>(word); };
    return added(app_->add_option_function<std::string>(name, read, doc))
        ->check(CLI::IsMember(std::vector<std::string>(words.begin(), words.end())))
        ->default_str(std::string(to_text(member)));
  }
  CLI::Option* flag(const char* name, bool& member, const char* doc) const {
    return added(app_->add_flag(name, member, doc));
  }
  void flag_off(const char* name, bool& member, const char* doc) const {
    app_->add_flag_callback(
        name, [&member] { member = false; }, doc);
  }

  void output(OutputOptions& output, bool junit) const {
    flag("--json", output.json, "print one JSON object as the last line");
    flag("--quiet", output.quiet, "no progress on stderr");
    if (junit) named("--junit", output.junit_file, "write a JUnit XML file", "FILE");
  }

  CLI::Option* oracles(Oracles& oracles) const {
    const auto read = [&oracles](const std::string& text) {
      const Parsed<Oracles> found = oracles_of(text, "--oracles");
      if (!found) throw CLI::ValidationError(found.error().to_text());
      oracles = *found;
    };
    return app_
        ->add_option_function<std::string>(
            "--oracles", read,
            "judge by these alone: lockstep (both sides must be equal), expectation (what a file "
            "expects), rules, leaks (tables are empty again where the reference's are); crashes "
            "are always reported")
        ->type_name("NAME,NAME");
  }

  CLI::Option* planted_bug(std::string& name) const {
    return named("--planted-bug", name, "test the optimized implementation with this planted bug",
                 "NAME");
  }

  void subject(Subject& subject) const {
    auto* planted = planted_bug(subject.planted_bug);
    auto* sut =
        named("--sut", subject.sut_command,
              "test a child process that speaks the line protocol, started with this shell command",
              "CMD");
    auto* library = named("--connector-library", subject.connector_library,
                          "with --target engine: test the connectors of this shared library, of "
                          "any kind, under the optimized scheduler",
                          "FILE");
    planted->excludes(sut);
    planted->excludes(library);
    sut->excludes(library);
    positive("--timeout", subject.timeout_seconds,
             "seconds without an answer after which a child times out (60 at least for the first); "
             "without a child: CPU seconds per command");
    memory_limit(subject);
  }
  void memory_limit(Subject& subject) const {
    with_default("--memory-limit", subject.memory_mib,
                 "MiB of memory per checking process, without a child; 0: no limit")
        ->check(CLI::Range(std::uint64_t{0}, kMemoryMibMax));
  }

 private:
  CLI::Option* added(CLI::Option* option) const {
    if (all_ == nullptr) return option;
    all_->emplace_back(option, targets_);
    std::string group = "With --target";
    for (const std::string& target : targets_) {
      group += (&target == &targets_.front() ? " " : " or ") + target;
    }
    return option->group(group);
  }

  CLI::App* app_;
  Targets targets_;
  Restricted* all_ = nullptr;
};

/// `key=value ...` as on a config line, each key once.
std::vector<Field> overrides_of(const std::vector<std::string>& texts) {
  if (texts.empty()) return {};
  return required(fields_of(joined(texts, " "), "--config"));
}

/// The options of `replay`.
class ReplayCommandLine {
 public:
  ReplayCommandLine(CLI::App* command, ReplayCommandOptions& options)
      : command_(command), options_(options) {
    const Options all(command);
    all.value("FILE", options.file, "a request trace in the Mooncake format")->required();
    all.one_of("--target", options.target, "component that the traffic runs through",
               {kBlockPool, kScheduler, kOffload, kEngine});
    gpu_blocks_ = all.value("--gpu-blocks", options.pool.gpu_blocks,
                            "blocks of the pool, including the null block")
                      ->check(positive_number())
                      ->default_str("10000; 65536 for scheduler, 2048 for offload, 512 for engine");
    auto* only = all.value("--only", options.only, "run one side only, for figures")
                     ->check(CLI::IsMember({"reference", "optimized"}));
    lockstep_ = all.flag("--lockstep", options.lockstep,
                         "run reference and optimized side by side (default for block_pool without "
                         "--only and --publish; for other targets optimized runs alone)")
                    ->excludes(only);
    all.positive("--state-every", options.pool.state_every,
                 "compare the whole state after every n-th command or step (answers and counts are "
                 "always compared)");
    // The last one counts, so that a line that reproduces a failure can be a line with an addition.
    all.value("--requests", options.pool.requests_max, "replay only the first N requests")
        ->check(positive_number())
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    all.named(
        "--csv", options.csv_file,
        "write the figures over time (with --curve: the curve; for engine: one row per request)",
        "FILE");
    of_some_targets_.emplace_back(
        all.named("--svg", options.svg_file, "draw the same figures; not for engine", "FILE"),
        Targets{kBlockPool, kScheduler, kOffload});
    all.planted_bug(options.subject.planted_bug);
    all.memory_limit(options.subject);
    all.output(options.output, /*junit=*/true);
    add_pool_options();
    add_scheduler_options();
    add_offload_options();
    add_publish_options();
    with({kEngine}).positive("--transfers-a-step", options.engine.transfers_a_step,
                             "transfers that the device runs per direction and step, at most");
  }

  /// To be called after parsing. Throws BadInput: an option of another target.
  void finish() {
    for (const auto& [option, targets] : of_some_targets_) {
      const bool fits = contains(targets, options_.target);
      if (fits || option->count() == 0) continue;
      throw BadInput(option->get_name() + ": not with --target " + options_.target);
    }
    SchedulerReplayOptions& scheduler = options_.scheduler;
    OffloadReplayOptions& offload = options_.offload;
    EngineReplayOptions& engine = options_.engine;
    if (gpu_blocks_->count() > 0) {
      scheduler.gpu_blocks = offload.gpu_blocks = engine.gpu_blocks = options_.pool.gpu_blocks;
    }
    scheduler.requests_max = offload.requests_max = engine.requests_max =
        options_.pool.requests_max;
    offload.profile = engine.profile = scheduler.profile;
    offload.policies.clear();
    for (const std::string& policy : policies_) {
      offload.policies.push_back(*from_text<EvictionPolicy>(policy));
    }
    offload.concurrency = engine.concurrency = options_.pool.concurrency;
    scheduler.state_every = offload.state_every = engine.state_every = options_.pool.state_every;
    engine.block_size = scheduler.block_size;
    engine.async_scheduling = scheduler.async_scheduling;
    if (max_num_batched_tokens_->count() > 0) {
      engine.max_num_batched_tokens = scheduler.max_num_batched_tokens;
    }
    if (options_.target == kEngine && cpu_blocks_->count() > 0) {
      if (offload.cpu_blocks.size() != 1) {
        throw BadInput("--cpu-blocks: found several capacities, expected one with --target engine");
      }
      engine.cpu_blocks = offload.cpu_blocks.front();
    }
    if (!options_.subject.planted_bug.empty()) {
      if (options_.only == "reference") throw BadInput("--planted-bug: not with --only reference");
      if (options_.only.empty()) options_.lockstep = !options_.is_published();
    }
    if (scheduler.policy != SchedulingPolicy::kPriority) {
      expect_none_of(*command_, {"--priorities"}, "without --policy priority");
    }
    if (scheduler.num_speculative_tokens == 0) {
      expect_none_of(*command_, {"--accept"}, "without --spec");
    }
    finish_publish_options();
  }

 private:
  static constexpr const char* kBlockPool = kReplayBlockPool;
  static constexpr const char* kScheduler = kReplayScheduler;
  static constexpr const char* kOffload = kReplayOffload;
  static constexpr const char* kEngine = kReplayEngine;

  Options with(Targets targets) { return {command_, std::move(targets), of_some_targets_}; }

  void add_pool_options() {
    const Options some = with({kBlockPool, kOffload, kEngine});
    some.positive("--concurrency", options_.pool.concurrency,
                  "requests that hold blocks at the same time; for engine: unfinished requests");
    curve_ = with({kBlockPool})
                 .list("--curve", options_.curve,
                       "print the hit rate at each of these pool sizes instead", "N,N,...")
                 ->check(positive_number())
                 ->excludes(lockstep_)
                 ->excludes(gpu_blocks_);
    some.with_default("--out", options_.out_folder, "folder for the scenario of a failure",
                      "FOLDER");
  }

  void add_scheduler_options() {
    SchedulerReplayOptions& options = options_.scheduler;
    const Options scheduler = with({kScheduler});
    const Options both = with({kScheduler, kEngine});
    both.positive("--block-size", options.block_size,
                  "tokens per block; for engine: tokens per hash id, 32 at most");
    scheduler.positive("--max-num-seqs", options.max_num_seqs,
                       "requests that run at the same time");
    max_num_batched_tokens_ =
        both.value("--max-num-batched-tokens", options.max_num_batched_tokens, "tokens per step")
            ->check(positive_number())
            ->default_str("8192; 512 for engine");
    scheduler.with_default("--max-model-len", options.max_model_len,
                           "longest request in tokens; 0: the longest of the trace");
    scheduler.with_default("--long-prefill-token-threshold", options.long_prefill_token_threshold,
                           "tokens per request and step; 0: no bound");
    scheduler.one_of("--policy", options.policy, "order of waiting requests");
    scheduler.positive(
        "--priorities", options.num_priorities,
        "with --policy priority: request n of the trace, from 0, has priority n modulo this");
    both.flag("--async", options.async_scheduling, "plan one step ahead (asynchronous scheduling)");
    scheduler
        .with_default("--spec", options.num_speculative_tokens, "draft tokens per request and step")
        ->check(at_most(kDraftsMax));
    scheduler.list("--accept", options.accepted,
                   "accepted drafts of the first list, the second, ..., then from the start again; "
                   "without it all are accepted",
                   "N,N,...");
    scheduler.positive("--trace-block-tokens", options.block_tokens, "prompt tokens per hash id");
    scheduler.with_default("--step-us", options.step_us, "simulated microseconds per step");
    scheduler.with_default("--token-ns", options.token_ns,
                           "simulated nanoseconds per token of a step, in addition");
    scheduler.with_default(
        "--interval-ms", options.interval_ms,
        "interval of the figures over time; 0: a 200th of the trace, at least 100 ms");
    scheduler.one_of("--hash-algorithm", options.hash_algorithm, "algorithm of block hashes");
    with({kScheduler, kOffload, kEngine})
        .one_of("--profile", options.profile, "release whose rules apply");
  }

  void add_offload_options() {
    cpu_blocks_ = with({kOffload, kEngine})
                      .list("--cpu-blocks", options_.offload.cpu_blocks,
                            "capacities of the CPU tier in blocks; for engine: one", "N,N,...")
                      ->check(positive_number())
                      ->default_str("1000,2000,5000,...,200000; 4096 for engine");
    const Options offload = with({kOffload});
    offload.list("--policies", policies_, "eviction policies of the CPU tier", "NAME,NAME")
        ->check(CLI::IsMember({"lru", "arc"}))
        ->default_str("lru,arc");
    offload.with_default("--store-threshold", options_.offload.store_threshold,
                         "lookups of a block before it is stored; below 2: no filter");
  }

  void add_publish_options() {
    audit::EventStreamOptions& publish = options_.publish;
    const Options some = with({kBlockPool, kScheduler});
    auto* const to =
        some.named("--publish", publish.publisher.endpoint,
                   "publish the KV events: bind this endpoint, e.g. tcp://127.0.0.1:5557 (port 0: "
                   "a free port); anything else is a file, a recording for kvfence audit",
                   "ENDPOINT")
            ->excludes(lockstep_)
            ->excludes(curve_);
    const auto needs_publish = [to](CLI::Option* option) { return option->needs(to); };
    needs_publish(
        some.one_of("--encoding", encoding_,
                    "encoding of events: arrays as in the profile's release, or maps as in 0.33",
                    {"arrays", "maps"}));
    needs_publish(
        some.one_of("--hashes", hashes_,
                    "hashes of blocks in events: all bytes, or the low 64 bits as integers",
                    {"bytes", "low64"}));
    needs_publish(some.named("--replay-endpoint", publish.publisher.replay_endpoint,
                             "bind this endpoint, and send missed messages again on request",
                             "ENDPOINT"));
    needs_publish(some.value("--topic", publish.publisher.topic, "topic of the messages"));
    needs_publish(some.with_default("--subscribers", publish.publisher.subscribers,
                                    "wait for this many subscribers before the first message"));
    needs_publish(some.positive("--patience", publish.publisher.patience_seconds,
                                "longest wait in seconds: for subscribers, for a slow subscriber "
                                "to take a message, and for all to leave at the end"));
    needs_publish(some.value("--speed", publish.speed,
                             "seconds of the trace per second; without it, as fast as possible")
                      ->check(positive_number()));
    needs_publish(some.value("--inject", faults_,
                             "put a fault into the first suitable message from N on, and again "
                             "every EVERY messages; scenarios/audit/faults.h lists the kinds",
                             "KIND@N[/EVERY]")
                      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
                      ->expected(1));
    needs_publish(some.named(
        "--truth", publish.truth_file,
        "write the blocks that are really held after each message, as JSON lines", "FILE"));
  }

  void finish_publish_options() {
    audit::EventStreamOptions& publish = options_.publish;
    if (encoding_ == "maps") publish.release = audit::WireRelease::kV033;
    publish.publisher.replay_has_topic = encoding_ == "maps";
    publish.low64 = hashes_ == "low64";
    for (const std::string& text : faults_) {
      publish.faults.push_back(required(audit::parse_fault(text)));
    }
  }

  CLI::App* command_;
  ReplayCommandOptions& options_;
  CLI::Option* lockstep_ = nullptr;
  CLI::Option* curve_ = nullptr;
  CLI::Option* gpu_blocks_ = nullptr;
  CLI::Option* cpu_blocks_ = nullptr;
  CLI::Option* max_num_batched_tokens_ = nullptr;
  Options::Restricted of_some_targets_;
  std::string encoding_ = "arrays";
  std::string hashes_ = "bytes";
  std::vector<std::string> faults_;
  std::vector<std::string> policies_ = {"lru", "arc"};
};

/// An option, for the man page and the completions.
OptionHelp help_of(const CLI::Option& option) {
  OptionHelp help;
  const std::string type = option.get_type_name();
  if (!option.nonpositional()) {
    help.value = option.get_name();
  } else if (option.get_items_expected_max() > 0) {
    help.value = type.substr(0, type.find(':'));
    help.default_value = option.get_default_str();
  }
  for (const std::string& name : option.get_snames()) help.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) help.names.push_back("--" + name);
  help.doc = option.get_description();
  // IsMember shows the values as TEXT:{a,b}.
  const std::size_t begin = type.find('{');
  if (begin != type.npos) {
    help.choices = CLI::detail::split(type.substr(begin + 1, type.find('}') - begin - 1), ',');
  } else if (option.get_name() == "--target") {
    for (const TargetTools& target : all_tools()) help.choices.emplace_back(target.name());
  }
  return help;
}

CommandHelp help_of(const CLI::App& app) {
  CommandHelp help{app.get_name(), app.get_description(), {}};
  for (const CLI::Option* option : app.get_options()) help.options.push_back(help_of(*option));
  return help;
}

ProgramHelp help_of_all(const CLI::App& app) {
  ProgramHelp help{help_of(app), {}, KVFENCE_VERSION, kExitCodes};
  const auto all = [](const CLI::App*) { return true; };
  for (const CLI::App* command : app.get_subcommands(all)) {
    help.commands.push_back(help_of(*command));
  }
  return help;
}

/// The command line after the subcommand, ready to be typed again.
std::string arguments_after_subcommand(int argc, char** argv) {
  std::string text;
  for (int k = 2; k < argc; ++k) {
    const std::string_view argument = argv[k];
    if (k > 2) text += ' ';
    text += shell_argument(argument);
  }
  return text;
}

/// All subcommands, and the options of each.
class CommandLine {
 public:
  CommandLine() {
    app_.require_subcommand(1);
    app_.set_version_flag("--version", "kvfence " KVFENCE_VERSION);
    app_.footer(kExitCodes);
    add_run();
    add_check();
    add_replay();
    add_audit();
    add_shrink();
    add_record();
    add_list();
    add_explain();
    add_serve();
    add_generate();
  }

  int run(int argc, char** argv) {
    arguments_ = replay_.arguments = arguments_after_subcommand(argc, argv);
    const auto commands = app_.get_subcommands([](const CLI::App*) { return true; });
    const std::string first = argc > 1 ? argv[1] : "-";
    if (!first.starts_with('-') && !contains(commands, first, &CLI::App::get_name)) {
      return bad_input("found '" + first + "', expected one of " +
                       joined(commands, ", ", &CLI::App::get_name));
    }
    try {
      app_.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      // CLI11 has a code of its own for each mistake; --help and --version are no mistakes.
      const bool is_mistake = app_.exit(error) != 0;
      const bool json = std::find(argv, argv + argc, std::string_view("--json")) != argv + argc;
      if (is_mistake && json) print_error_json(error.what(), exit_code::kBadInput);
      return with_stdout_written(is_mistake ? exit_code::kBadInput : exit_code::kAgree);
    }
    return exit_code_;
  }

 private:
  /// A subcommand: what it does once its options are read.
  Options command(const char* name, const char* doc, std::function<int()> run) {
    CLI::App* const app = app_.add_subcommand(name, doc);
    app->callback([this, app, run = std::move(run)] {
      const CLI::Option* const json = app->get_option_no_throw("--json");
      exit_code_ = exit_code_of(run, json != nullptr && json->count() > 0);
    });
    return Options(app);
  }

  void add_run() {
    const Options options = command("run", "run scenarios and traces (.kvs) against the reference",
                                    [&] { return run_command(run_); });
    options.value("FILE", run_.paths, "scenario files, or folders of them")->required();
    options.value("--until", run_.check.commands_max, "stop after that many commands");
    options.value("--episode", run_.check.episode, "only this episode of a file of several");
    options.flag_off("--no-shrink", run_.check.shrink,
                     "report a failure as found, without shrinking it");
    options.oracles(run_.check.oracles);
    options.subject(run_.subject);
    options.output(run_.output, /*junit=*/true);
  }

  void add_check() {
    const Options options = command("check", "check random interleavings against the reference",
                                    [&] { return run_check(); });
    CheckOptions& check = check_.check;
    check_.jobs = std::max(1U, std::thread::hardware_concurrency());
    options.value("--target", check_.target, "what to check; see kvfence list")->required();
    options
        .value("--seconds", check_.seconds_max,
               "stop after this many seconds (10 if no bound is given)")
        ->check(positive_number());
    options.value("--commands", check.commands_max, "stop after that many commands")
        ->check(positive_number());
    options.with_default("--seed", check.seed, "seed of every configuration and command");
    options.positive("--jobs", check_.jobs, "processes; findings do not depend on their number")
        ->check(at_most(kJobsMax))
        ->default_str("one per core");
    options.value("--episode", check.episode, "run only this episode of the seed");
    options.positive("--episode-commands", check.episode_commands,
                     "commands of most episodes, and one in 512 has 10,000 or more; each episode "
                     "starts with fresh implementations");
    options.value("--config", config_,
                  "settings that every configuration must have, e.g. profile=v0.19; for target "
                  "engine e.g. assembly=offloading offloading.eviction_policy=arc",
                  "KEY=VALUE");
    options.flag_off("--no-shrink", check.shrink,
                     "report a failure as found, without shrinking it");
    options.with_default("--out", check_.out_folder, "folder for the scenario of a failing episode",
                         "FOLDER");
    options
        .flag("--planted-bugs", runs_planted_bugs_,
              "run every planted bug, or those of a pinned assembly, and print which oracle "
              "catches it and how fast")
        ->excludes(options.oracles(check.oracles));
    options.positive("--seeds", bugs_.num_seeds, "with --planted-bugs: seeds per bug");
    options.flag("--markdown", bugs_.markdown, "with --planted-bugs: the table as Markdown");
    options.subject(check_.subject);
    options.output(check_.output, /*junit=*/true);
  }

  int run_check() {
    CheckOptions& check = check_.check;
    check.config_overrides = overrides_of(config_);
    const CLI::App& command = *app_.get_subcommand("check");
    if (runs_planted_bugs_) {
      expect_none_of(command,
                     {"--planted-bug", "--sut", "--connector-library", "--seconds", "--episode",
                      "--episode-commands", "--no-shrink", "--out", "--junit"},
                     "with --planted-bugs");
      bugs_.target = check_.target;
      bugs_.config_overrides = check.config_overrides;
      bugs_.seed = check.seed;
      bugs_.output = check_.output;
      bugs_.commands_max = check.commands_max.value_or(bugs_.commands_max);
      return planted_bugs_command(bugs_);
    }
    expect_none_of(command, {"--seeds", "--markdown"}, "without --planted-bugs");
    constexpr double kSeconds = 10;
    if (!check.commands_max && !check.episode && !check_.seconds_max) check_.seconds_max = kSeconds;
    if (!check.commands_max) check.commands_max = UINT64_MAX;
    return check_command(check_);
  }

  void add_replay() {
    const Options options = command(
        "replay",
        "replay production traffic through the pool, the scheduler, two tiers or an engine", [&] {
          replay_line_->finish();
          return contained(
              "replay", [&] { return replay_command(replay_); }, replay_.subject, replay_.output);
        });
    replay_line_.emplace(options.app(), replay_);
  }

  void add_audit() {
    const Options options =
        command("audit", "check the KV events of running engines, or a recording of them", [&] {
          if (!audit_.file.empty()) {
            expect_none_of(*app_.get_subcommand("audit"),
                           {"--topic", "--high-water-mark", "--for", "--record", "--metrics-port"},
                           "with a recording");
          }
          return audit_command(audit_);
        });
    auto* const file = options.value("FILE", audit_.file, "a recording (or give --endpoint)");
    options
        .value("--endpoint", audit_.endpoints,
               "subscribe to a publisher, e.g. tcp://host:5557; with * as host: bind, and wait for "
               "a publisher",
               "URL")
        ->excludes(file);
    options.value("--replay-endpoint", audit_.replay_endpoints,
                  "request missed messages there; in the order of --endpoint", "URL");
    options.value("--topic", audit_.subscriber.topic, "prefix of the topics to subscribe to");
    options.positive(
        "--high-water-mark", audit_.subscriber.high_water_mark,
        "messages that are buffered per endpoint; more are dropped, and reported as lost");
    options
        .value("--for", audit_.seconds_max,
               "stop after this many seconds (without it: at an interrupt)", "SECONDS")
        ->check(positive_number());
    options
        .value("--num-blocks", audit_.rules.blocks_max,
               "blocks of the engine's GPU pool; more held blocks are a finding")
        ->check(positive_number());
    options.one_of("--hash-algorithm", audit_.hash_algorithm,
                   "algorithm of block hashes; auto: found from the first ones",
                   {"auto", "sha256", "sha256_cbor", "xxhash", "xxhash_cbor"});
    options.value(
        "--hash-seed", audit_.rules.hash_seed,
        "PYTHONHASHSEED of the engine (without it: the default and common values are tried)",
        "TEXT");
    options.named("--record", audit_.record_file, "write all received messages as a recording",
                  "FILE");
    options.named("--out", audit_.out_folder, "write the evidence of each finding as a recording",
                  "FOLDER");
    options.value("--metrics-port", audit_.metrics_port,
                  "serve figures for Prometheus on this port", "PORT");
    options.output(audit_.output, /*junit=*/true);
  }

  void add_shrink() {
    const Options options =
        command("shrink", "make a failing scenario small", [&] { return shrink_command(shrink_); });
    options.value("FILE", shrink_.file, "a scenario that fails")->required();
    options.named("--out", shrink_.out_file, "output file (default: FILE with .shrunk.kvs)",
                  "FILE");
    options.oracles(shrink_.oracles);
    options.subject(shrink_.subject);
    options.output(shrink_.output, /*junit=*/false);
  }

  void add_record() {
    const Options options =
        command("record", "record the answers of an implementation as traces", [&] {
          if (!record_.scenario_file.empty()) {
            expect_none_of(*app_.get_subcommand("record"),
                           {"--target", "--seed", "--episodes", "--episode-commands", "--config"},
                           "with FILE");
          }
          record_.record.config_overrides = overrides_of(config_);
          return contained(
              "record", [&] { return record_command(record_); }, record_.record.subject,
              record_.output);
        });
    options.value("FILE", record_.scenario_file,
                  "record the answers to these commands (without it: random episodes)");
    options.with_default("--target", record_.target, "target of random episodes");
    options.value("--out", record_.out,
                  "output file (.kvs, or .kvs.gz compressed; default: FILE itself); for random "
                  "episodes a folder, or a file of all");
    options.with_default("--seed", record_.record.seed, "seed of random episodes");
    options.positive("--episodes", record_.record.episodes, "number of random episodes");
    options.value("--episode", record_.record.episode, "only this episode, of the seed or of FILE");
    options.positive("--episode-commands", record_.record.episode_commands,
                     "commands per random episode");
    options.value("--config", config_, "settings that every configuration must have", "KEY=VALUE");
    options
        .value("--digests", record_.record.digest_every,
               "write a digest of every N observations instead of their texts", "N")
        ->check(positive_number());
    options.flag("--sparse-state", record_.record.sparse_state,
                 "with --digests: observe the state only at a digest");
    options.subject(record_.record.subject);
    options.output(record_.output, /*junit=*/false);
  }

  void add_list() {
    const Options options = command("list", "list targets, commands, rules, goals and more by name",
                                    [&] { return run_list(); });
    options.one_of("WHAT", list_.what,
                   "targets, commands, rules, goals, planted-bugs, factors, left-out, "
                   "release-rules, devices",
                   {"targets", "commands", "rules", "goals", "planted-bugs", "factors", "left-out",
                    "release-rules", "devices"});
    options.value("--target", list_.target, "list only what belongs to this target");
    options.with_default("--seed", list_.factors.seed, "with factors: seed of the configurations");
    options.positive("--configurations", list_.factors.num_configs,
                     "with factors: number drawn per part");
    options.output(list_.output, /*junit=*/false);
  }

  int run_list() const {
    const CLI::App& command = *app_.get_subcommand("list");
    const std::vector<std::string> of_all = {"targets", "left-out", "release-rules", "devices"};
    if (contains(of_all, list_.what)) expect_none_of(command, {"--target"}, "with " + list_.what);
    if (list_.what != "factors") {
      expect_none_of(command, {"--seed", "--configurations"}, "without factors");
    }
    return list_command(list_);
  }

  void add_explain() {
    const Options options = command("explain", "show what a scenario does, step by step",
                                    [&] { return explain_command(explain_); });
    options.value("FILE", explain_.file, "a scenario")->required();
    options.value("--episode", explain_.episode, "only this episode of a file of several");
    options.named("--html", explain_.html_file, "write what the device did as a page", "OUT");
    options.named("--trace", explain_.trace_file,
                  "write what the device did for chrome://tracing or Perfetto", "OUT");
    options.oracles(explain_.oracles);
    options.subject(explain_.subject);
  }

  void add_serve() {
    const Options options =
        command("serve", "serve the line protocol: answer commands from stdin on stdout", [&] {
          return required(tools_of(serve_target_, "--target"))
              ->serve(serve_bug_, serves_reference_);
        });
    options.value("--target", serve_target_, "target to serve")->required();
    auto* bug = options.value("--planted-bug", serve_bug_,
                              "serve the optimized implementation with this planted bug", "NAME");
    options
        .flag("--reference", serves_reference_,
              "serve the reference instead of the optimized implementation")
        ->excludes(bug);
  }

  void add_generate() {
    static const std::map<std::string, std::string (*)(const ProgramHelp&)> kPages = {
        {"man", man_page},
        {"bash", bash_completions},
        {"zsh", zsh_completions},
        {"fish", fish_completions}};
    command("generate", "print the man page, or the completions of a shell",
            [&] {
              std::printf("%s", kPages.at(page_)(help_of_all(app_)).c_str());
              return exit_code::kAgree;
            })
        .value("WHAT", page_, "man, bash, zsh, fish")
        ->required()
        ->check(CLI::IsMember({"man", "bash", "zsh", "fish"}));
  }

  /// Runs a command whose implementation may crash in a process of its own.
  int contained(const std::string& name, const std::function<int()>& command,
                const Subject& subject, const OutputOptions& output) const {
    const auto work = [&](RunPosition&) {
      return std::to_string(exit_code_of(command, output.json));
    };
    ContainedRun run(work, {.seconds_per_command = 0, .memory_bytes = subject.memory_bytes()});
    run.wait();
    if (run.answer()) return std::stoi(*run.answer());
    const std::string message = "the process that ran both sides " + run.how_it_ended() +
                                "; reproduce: kvfence " + name + " " + arguments_;
    return without_report({exit_code::kDisagreement, {}, message, {}}, output);
  }

  CLI::App app_{
      "kvfence checks KV-cache managers, command by command: a simple reference against an "
      "optimized implementation, against a planted bug, or against yours.",
      "kvfence"};
  int exit_code_ = exit_code::kAgree;
  std::string arguments_;            ///< after the subcommand, as they could be typed again
  std::vector<std::string> config_;  ///< --config of the subcommand
  RunCommandOptions run_;
  CheckCommandOptions check_;
  PlantedBugsCommandOptions bugs_;
  bool runs_planted_bugs_ = false;
  ReplayCommandOptions replay_;
  std::optional<ReplayCommandLine> replay_line_;
  AuditCommandOptions audit_;
  ShrinkCommandOptions shrink_;
  RecordCommandOptions record_;
  ListCommandOptions list_;
  ExplainCommandOptions explain_;
  std::string serve_target_;
  std::string serve_bug_;
  bool serves_reference_ = false;
  std::string page_;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    return CommandLine().run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kvfence: %s\n", error.what());
    return kvfence::exit_code::kBadInput;
  }
}
