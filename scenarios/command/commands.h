#pragma once

/// The subcommands of `kvfence`: options in, exit code out; bad input is thrown (output.h).
/// main.cpp fills the options from the command line; each command is in its own <name>_command.cpp.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "properties/draws/factor_survey.h"
#include "scenarios/audit/checks.h"
#include "scenarios/audit/event_stream.h"
#include "scenarios/audit/subscriber.h"
#include "scenarios/command/target_tools.h"
#include "scenarios/replay/engine_replay.h"
#include "scenarios/replay/offload_replay.h"
#include "scenarios/replay/scheduler_replay.h"
#include "scenarios/replay/traffic_replay.h"

namespace kvfence {

/// How results are shown.
struct OutputOptions {
  bool json = false;       ///< one object as the last line on stdout
  std::string junit_file;  ///< empty for none
  bool quiet = false;      ///< no progress
};

struct RunCommandOptions {
  std::vector<std::string> paths;  ///< files, and folders that are searched for *.kvs
  Subject subject;
  CheckOptions check;  ///< without a scenario; an episode is one of each file
  OutputOptions output;
};
int run_command(const RunCommandOptions& options);

struct CheckCommandOptions {
  std::string target;
  Subject subject;
  CheckOptions check;
  std::optional<double> seconds_max;
  std::uint32_t jobs = 1;        ///< processes
  std::string out_folder = ".";  ///< where a failing episode is written, shrunk
  OutputOptions output;
};
int check_command(const CheckCommandOptions& options);

struct PlantedBugsCommandOptions {
  std::string target;
  std::vector<Field> config_overrides;  ///< if they pin an assembly: only its bugs
  std::uint64_t seed = 1;
  int num_seeds = 5;
  std::uint64_t commands_max = 200'000;  ///< a seed
  bool markdown = false;
  OutputOptions output;
};
/// Runs each planted bug and prints the table; disagreement if one is not caught.
int planted_bugs_command(const PlantedBugsCommandOptions& options);

/// What can serve traffic. Three are targets; a scheduler is an engine without a connector.
inline constexpr const char* kReplayBlockPool = "block_pool";
inline constexpr const char* kReplayScheduler = "scheduler";
inline constexpr const char* kReplayOffload = "offload";
inline constexpr const char* kReplayEngine = "engine";

struct ReplayCommandOptions {
  std::string target = kReplayBlockPool;
  std::string file;
  TrafficReplayOptions pool;  ///< of that target; options that others share are here
  std::string only;           ///< "reference" or "optimized" alone; empty for the target's default
  std::string csv_file;
  std::string svg_file;
  std::string out_folder = ".";  ///< where a failure is written, shrunk
  std::vector<std::uint32_t>
      curve;  ///< pool sizes; not empty: the hit-rate curve instead of one run
  SchedulerReplayOptions scheduler;
  OffloadReplayOptions offload;
  EngineReplayOptions engine;
  audit::EventStreamOptions publish;  ///< with an endpoint: the KV events of one side alone
  bool is_published() const { return !publish.publisher.endpoint.empty(); }
  bool lockstep = false;  ///< with the targets for which it is not the default
  std::string arguments;  ///< the command line after `kvfence replay`
  Subject subject;
  OutputOptions output;
};
int replay_command(const ReplayCommandOptions& options);

struct AuditCommandOptions {
  std::string file;  ///< a recording; empty: the endpoints
  std::vector<std::string> endpoints;
  std::vector<std::string> replay_endpoints;  ///< in the order of the endpoints
  audit::SubscriberOptions subscriber;
  audit::CheckRules rules;
  std::string hash_algorithm = "auto";
  std::optional<double> seconds_max;  ///< none: until a signal
  std::string record_file;
  std::string out_folder;  ///< of evidence; empty for none
  std::optional<std::uint16_t> metrics_port;
  OutputOptions output;
};
/// Checks KV events of engines, live or recorded, against what a correct engine can send.
int audit_command(const AuditCommandOptions& options);

struct ShrinkCommandOptions {
  std::string file;
  std::string out_file;  ///< empty: FILE with .shrunk.kvs
  Subject subject;
  Oracles oracles;
  OutputOptions output;
};
int shrink_command(const ShrinkCommandOptions& options);

struct RecordCommandOptions {
  std::string target = "block_pool";
  std::string scenario_file;  ///< record the answers to these commands; empty: random episodes
  std::string out;            ///< a file; for random episodes also a folder
  RecordOptions record;
  OutputOptions output;
};
int record_command(const RecordCommandOptions& options);

struct ListCommandOptions {
  std::string what = "targets";
  std::string target;  ///< empty for all
  FactorSurveyOptions factors;
  OutputOptions output;
};
int list_command(const ListCommandOptions& options);

struct ExplainCommandOptions {
  std::string file;
  std::optional<std::size_t> episode;
  std::string html_file;   ///< for scenarios with a device; empty for none
  std::string trace_file;  ///< likewise
  Subject subject;
  Oracles oracles;
};
int explain_command(const ExplainCommandOptions& options);

}  // namespace kvfence
