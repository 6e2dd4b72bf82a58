/// `kvfence audit`: checks KV events of engines, live or recorded, against what a correct engine
/// can send.

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "contract/connectors/prometheus_text.h"
#include "contract/core/hex.h"
#include "contract/core/joined.h"
#include "properties/report/number_text.h"
#include "properties/report/report.h"
#include "scenarios/audit/auditor.h"
#include "scenarios/audit/metrics_server.h"
#include "scenarios/audit/recording.h"
#include "scenarios/audit/subscriber.h"
#include "scenarios/command/commands.h"
#include "scenarios/command/files.h"
#include "scenarios/command/output.h"
#include "scenarios/command/progress.h"
#include "scenarios/command/shell_word.h"

namespace kvfence {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

/// Messages that are kept so that evidence can be taken from them.
constexpr std::size_t kKeptBytes = std::size_t{64} << 20;
/// Evidence is written for the first findings only.
constexpr std::size_t kEvidenceMax = 100;
constexpr int kPollMilliseconds = 100;
/// Time without messages after which a missing one counts as lost.
constexpr std::chrono::seconds kSettleAfter{1};

volatile std::sig_atomic_t is_interrupted = 0;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// ---- While it runs ----

/// The size of the mirrors, and the rate of events.
class LiveView {
 public:
  explicit LiveView(bool quiet) : line_(quiet, kPeriod, kPeriod) {}

  void show(const audit::Auditor& auditor) {
    if (!line_.is_due()) return;
    const double elapsed = since(shown_at_);
    const audit::CheckCounts counts = auditor.check_counts();
    const audit::Holdings holdings = auditor.holdings();
    const auto rate = [&](std::uint64_t now, std::uint64_t before) {
      return number_text(static_cast<double>(now - before) / elapsed);
    };
    const std::string line = with_thousands(holdings.gpu_blocks) + " blocks held, " +
                             rate(counts.stored, before_.stored) + " stored and " +
                             rate(counts.removed, before_.removed) + " removed per second, depth " +
                             with_thousands(holdings.depth_max) + ", " +
                             with_thousands(counts.duplicates) + " duplicates, lag " +
                             number_text(auditor.counts().lag_seconds) + " s, " +
                             with_thousands(auditor.findings().size()) + " findings";
    line_.show(line);
    before_ = counts;
    shown_at_ = Clock::now();
  }

 private:
  static constexpr std::chrono::seconds kPeriod{1};

  StatusLine line_;
  audit::CheckCounts before_;
  Clock::time_point shown_at_ = Clock::now();
};

std::string metrics_of(const audit::Auditor& auditor) {
  std::vector<PrometheusMetric> metrics;
  const auto add = [&](const char* name, const char* help, PrometheusType type) {
    metrics.push_back({std::string("kvfence_audit_") + name, help, type, {}});
    return type == PrometheusType::kCounter ? "_total" : "";
  };
  using View = audit::StreamView;
  const std::vector<View> views = auditor.views();
  const auto add_of_streams = [&](const char* name, const char* help, PrometheusType type,
                                  std::uint64_t (*value)(const View&)) {
    const std::string suffix = add(name, help, type);
    for (const View& view : views) {
      metrics.back().samples.push_back({suffix,
                                        {{"engine", view.engine},
                                         {"rank", view.rank ? std::to_string(*view.rank) : ""},
                                         {"topic", view.topic}},
                                        static_cast<double>(value(view))});
    }
  };
  constexpr PrometheusType kCounter = PrometheusType::kCounter;
  constexpr PrometheusType kGauge = PrometheusType::kGauge;
  add_of_streams("blocks", "hashes held on the GPU", kGauge,
                 [](const View& view) { return view.holdings.gpu_blocks; });
  add_of_streams("prefix_depth", "blocks of the longest prefix since the last clear", kGauge,
                 [](const View& view) { return view.holdings.depth_max; });
  add_of_streams("certain", "1 if no missing message can explain a finding", kGauge,
                 [](const View& view) { return std::uint64_t{view.is_certain}; });
  add_of_streams("stored", "hashes stored", kCounter,
                 [](const View& view) { return view.counts.stored; });
  add_of_streams("removed", "hashes removed", kCounter,
                 [](const View& view) { return view.counts.removed; });
  add_of_streams("duplicates", "hashes stored that were already held", kCounter,
                 [](const View& view) { return view.counts.duplicates; });
  add_of_streams("clears", "clears", kCounter, [](const View& view) { return view.counts.clears; });
  add("lag_seconds", "arrival minus time of the last message", kGauge);
  metrics.back().samples.push_back({"", {}, auditor.counts().lag_seconds});
  add("messages", "messages received", kCounter);
  metrics.back().samples.push_back({"_total", {}, static_cast<double>(auditor.counts().messages)});
  add("replayed", "messages asked for again", kCounter);
  metrics.back().samples.push_back({"_total", {}, static_cast<double>(auditor.counts().replayed)});
  add("findings", "findings by rule", kCounter);
  for (std::size_t rule = 0; rule < audit::kRules.size(); ++rule) {
    metrics.back().samples.push_back(
        {"_total",
         {{"rule", std::string(audit::kRules[rule].name)}},
         static_cast<double>(auditor.findings().count(static_cast<audit::Rule>(rule)))});
  }
  return print(metrics);
}

// ---- Where messages come from ----

/// Returns the error after the last whole record, if any.
std::optional<audit::RecordingReader::Cut> audit_recording(const std::string& path, bool quiet,
                                                           audit::Auditor& auditor) {
  const std::string text = required(read_file(path));
  audit::RecordingReader reader;
  std::string error;
  if (!reader.open(text, error)) throw BadInput(path + ": " + error);
  Progress progress("messages", quiet);
  for (audit::Arrival arrival; reader.read(arrival);) {
    auditor.take(arrival);
    progress.show(auditor.counts().messages, 0);
  }
  return reader.cut();
}

/// Until the time is over or a signal comes.
void audit_live(const AuditCommandOptions& options, audit::Auditor& auditor) {
  audit::SubscriberOptions subscriber_options = options.subscriber;
  for (std::size_t index = 0; index < options.endpoints.size(); ++index) {
    subscriber_options.endpoints.push_back(
        {options.endpoints[index],
         index < options.replay_endpoints.size() ? options.replay_endpoints[index] : ""});
  }
  const auto subscriber = required(audit::Subscriber::open(subscriber_options));
  audit::RecordingWriter recording;
  const auto expect_written = [](const std::optional<std::string>& problem) {
    if (problem) throw BadInput(InputError{"--record", {}, *problem, "a file to write"});
  };
  if (!options.record_file.empty()) expect_written(recording.open(options.record_file));
  audit::MetricsServer metrics;
  if (options.metrics_port) {
    const auto problem = metrics.open(*options.metrics_port);
    if (problem) throw BadInput(InputError{"--metrics-port", {}, *problem, "a port that is free"});
    if (!options.output.quiet) {
      std::fprintf(stderr, "kvfence: figures at port %d\n", metrics.port());
    }
  }
  const auto take = [&](const audit::Arrival& arrival) {
    if (!options.record_file.empty()) expect_written(recording.write(arrival));
    auditor.take(arrival);
  };
  is_interrupted = 0;
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, [](int) { is_interrupted = 1; });
  LiveView view(options.output.quiet);
  const Clock::time_point start = Clock::now();
  Clock::time_point heard = start;
  std::vector<audit::Arrival> arrivals;
  std::vector<std::pair<std::string, std::string>> rejected;
  // What waits when it ends is audited as well, but not what a publisher goes on to send.
  std::size_t num_waiting =
      options.endpoints.size() * static_cast<std::size_t>(options.subscriber.high_water_mark);
  while (num_waiting > 0) {
    const bool is_over =
        is_interrupted != 0 || (options.seconds_max && since(start) >= *options.seconds_max);
    arrivals.clear();
    rejected.clear();
    subscriber->receive(is_over ? 0 : kPollMilliseconds, arrivals, rejected);
    if (is_over) {
      num_waiting = arrivals.empty() ? 0 : num_waiting - std::min(num_waiting, arrivals.size());
    }
    for (const auto& [engine, found] : rejected) auditor.reject(engine, found);
    for (const audit::Arrival& arrival : arrivals) {
      if (const std::optional<std::uint64_t> first = auditor.missing_before(arrival)) {
        for (const audit::Arrival& replayed : subscriber->replay(*first, arrival)) {
          take(replayed);
        }
      }
      take(arrival);
    }
    if (!arrivals.empty()) heard = Clock::now();
    if (Clock::now() - heard > kSettleAfter) auditor.settle();
    view.show(auditor);
    metrics.serve([&] { return metrics_of(auditor); });
  }
  for (const std::string& address : subscriber->silent()) {
    std::fprintf(stderr, "kvfence: --replay-endpoint: %s: no answer\n", address.c_str());
  }
}

// ---- The outcome ----

struct Shown {
  const audit::Finding* finding;
  std::string evidence;  ///< a file; empty for none
};

/// Writes the evidence that is asked for, if it gives its finding again.
std::vector<Shown> write_evidence(const AuditCommandOptions& options,
                                  const audit::Auditor& auditor) {
  std::vector<Shown> all;
  for (const audit::Finding& finding : auditor.findings().kept()) {
    Shown& shown = all.emplace_back(Shown{&finding, {}});
    if (options.out_folder.empty() || all.size() > kEvidenceMax) continue;
    std::string text(audit::kRecordingHead);
    audit::Auditor again({options.rules, 0});
    for (const audit::Arrival& arrival : auditor.evidence_of(finding)) {
      audit::append_record(text, arrival);
      again.take(arrival);
    }
    again.finish();
    if (again.findings().count(finding.rule) == 0) continue;
    const std::string name = "audit-" + std::to_string(all.size()) + "-" +
                             std::string(audit::text_of(finding.rule).name) + ".kva";
    const std::string path = (std::filesystem::path(options.out_folder) / name).string();
    if (const auto problem = write_file(path, text)) {
      bad_input(*problem);
      continue;
    }
    shown.evidence = path;
  }
  return all;
}

/// The options that evidence needs to give its finding again.
std::string reproduce(const AuditCommandOptions& options, const std::string& path) {
  std::string text = "kvfence audit " + shell_word(path);
  if (options.rules.blocks_max > 0) {
    text += " --num-blocks " + std::to_string(options.rules.blocks_max);
  }
  if (options.rules.hash_function) text += " --hash-algorithm " + options.hash_algorithm;
  if (options.rules.hash_seed) text += " --hash-seed " + shell_word(*options.rules.hash_seed);
  return text;
}

Json to_json(const Shown& shown) {
  const audit::Finding& finding = *shown.finding;
  const audit::RuleText& rule = audit::text_of(finding.rule);
  Json json = {
      {"id", rule.id}, {"rule", rule.name}, {"engine", finding.engine}, {"topic", finding.topic}};
  if (finding.rank) json["rank"] = *finding.rank;
  json["sequence"] = finding.at.sequence;
  if (finding.at.event != audit::EventRef::kNoEvent) json["event"] = finding.at.event;
  if (!finding.event.empty()) json["what"] = finding.event;
  json["found"] = finding.found;
  json["expected"] = finding.expected;
  json["led_there"] = Json::array();
  for (const audit::EventRef& ref : finding.led_there) json["led_there"].push_back(ref.sequence);
  if (!shown.evidence.empty()) json["evidence"] = shown.evidence;
  return json;
}

Json to_json(const audit::Auditor& auditor, const std::string& source, double seconds,
             const std::vector<Shown>& shown) {
  const audit::AuditCounts& counts = auditor.counts();
  const audit::CheckCounts checks = auditor.check_counts();
  const audit::Holdings holdings = auditor.holdings();
  const std::uint64_t held = holdings.gpu_blocks + holdings.other_blocks;
  Json json = {
      {"source", source},
      {"messages", counts.messages},
      {"replayed", counts.replayed},
      {"events", counts.events},
      {"seconds", seconds},
      {"events_per_second", seconds > 0 ? static_cast<double>(counts.events) / seconds : 0},
      {"unknown_fields", counts.unknown_fields},
      {"stored", checks.stored},
      {"duplicates", checks.duplicates},
      {"removed", checks.removed},
      {"clears", checks.clears},
      {"hashes_checked", checks.hashes_checked},
      {"hashes_not_checked", checks.hashes_not_checked},
      {"gpu_blocks", holdings.gpu_blocks},
      {"other_blocks", holdings.other_blocks},
      {"prefix_depth", holdings.depth_max},
      {"mirror_bytes", holdings.memory_bytes},
      {"bytes_per_block",
       held > 0 ? static_cast<double>(holdings.memory_bytes) / static_cast<double>(held) : 0},
      {"findings_total", auditor.findings().size()},
      {"findings", Json::array()},
      {"streams", Json::array()}};
  for (const Shown& one : shown) json["findings"].push_back(to_json(one));
  for (const audit::StreamView& view : auditor.views()) {
    Json stream = {{"engine", view.engine}, {"topic", view.topic}};
    if (view.rank) stream["rank"] = *view.rank;
    stream.update(Json{{"next", view.next},
                       {"certain", view.is_certain},
                       {"gpu_blocks", view.holdings.gpu_blocks},
                       {"hashes", view.hashes}});
    json["streams"].push_back(std::move(stream));
  }
  return json;
}

/// One test case per rule.
std::vector<Report> reports_of(const audit::Auditor& auditor, const std::string& source,
                               double seconds) {
  std::vector<Report> reports;
  for (std::size_t index = 0; index < audit::kRules.size(); ++index) {
    const audit::RuleText& rule = audit::kRules[index];
    Report& report = reports.emplace_back();
    report.target = "audit." + std::string(rule.name);
    report.source = source;
    report.expected_name = "a correct engine";
    report.actual_name = "the engine";
    report.commands = auditor.counts().messages;
    report.seconds = index == 0 ? seconds : 0;
    report.disagreements = auditor.findings().count(static_cast<audit::Rule>(index));
    for (const audit::Finding& finding : auditor.findings().kept()) {
      if (static_cast<std::size_t>(finding.rule) != index) continue;
      report.divergence = Divergence{finding.at.sequence, std::string(rule.id), "message",
                                     finding.expected,    finding.found,        finding.to_text()};
      break;
    }
  }
  return reports;
}

void print_text(const AuditCommandOptions& options, const audit::Auditor& auditor, double seconds,
                const std::vector<Shown>& shown) {
  const audit::AuditCounts& counts = auditor.counts();
  const audit::CheckCounts checks = auditor.check_counts();
  for (const Shown& one : shown) {
    std::printf("%s\n", one.finding->to_text().c_str());
    if (one.evidence.empty()) continue;
    std::printf("  reproduce: %s\n", reproduce(options, one.evidence).c_str());
  }
  if (auditor.findings().size() > shown.size()) {
    std::printf("and %s more findings\n",
                with_thousands(auditor.findings().size() - shown.size()).c_str());
  }
  std::vector<std::string> silent = options.endpoints;
  for (const audit::StreamView& view : auditor.views()) {
    std::erase(silent, view.engine);
    std::printf("%s%s%s%s: %s blocks held%s; hashes: %s\n", printable(view.engine).c_str(),
                view.topic.empty() ? "" : " topic ", printable(view.topic).c_str(),
                view.rank ? (" rank " + std::to_string(*view.rank)).c_str() : "",
                with_thousands(view.holdings.gpu_blocks).c_str(),
                view.is_certain ? "" : ", uncertain until a clear", view.hashes.c_str());
  }
  for (const std::string& endpoint : silent) {
    std::printf("%s: no message arrived\n", endpoint.c_str());
  }
  std::string verdict = counts.messages > 0 ? "agree" : "nothing checked";
  if (auditor.findings().size() > 0) {
    verdict = "FAIL: " + with_thousands(auditor.findings().size()) + " findings";
  }
  std::printf(
      "%s: %s events in %s messages (%s replayed) and %s s; %s hashes recomputed, "
      "%s not; %s duplicates, %s clears\n",
      verdict.c_str(), with_thousands(counts.events).c_str(),
      with_thousands(counts.messages).c_str(), with_thousands(counts.replayed).c_str(),
      number_text(seconds).c_str(), with_thousands(checks.hashes_checked).c_str(),
      with_thousands(checks.hashes_not_checked).c_str(), with_thousands(checks.duplicates).c_str(),
      with_thousands(checks.clears).c_str());
}

}  // namespace

int audit_command(const AuditCommandOptions& command_line) {
  AuditCommandOptions options = command_line;
  if (options.file.empty() == options.endpoints.empty()) {
    throw BadInput("audit: found no recording and no --endpoint, expected one of them");
  }
  if (options.replay_endpoints.size() > options.endpoints.size()) {
    throw BadInput("--replay-endpoint: found more of them than --endpoint");
  }
  if (!options.endpoints.empty() && !audit::Subscriber::is_available()) {
    return without_report({exit_code::kCannotRun,
                           {},
                           "audit: this build has no ZeroMQ, so it reads recordings alone",
                           {}},
                          options.output);
  }
  options.rules.hash_function = from_text<audit::HashFunction>(options.hash_algorithm);
  if (!options.out_folder.empty()) make_out_folder(options.out_folder);
  expect_writable({options.output.junit_file});

  audit::Auditor auditor({options.rules, options.out_folder.empty() ? 0 : kKeptBytes});
  std::optional<audit::RecordingReader::Cut> cut;
  const Clock::time_point start = Clock::now();
  if (options.file.empty()) {
    audit_live(options, auditor);
  } else {
    cut = audit_recording(options.file, options.output.quiet, auditor);
  }
  auditor.finish();
  const double seconds = since(start);

  const std::vector<Shown> shown = write_evidence(options, auditor);
  const std::string source = options.file.empty() ? joined(options.endpoints) : options.file;
  std::vector<NotRun> not_audited;
  if (cut) {
    std::fprintf(stderr, "kvfence: %s: the recording is %s: %s\n", source.c_str(),
                 cut->is_damage ? "damaged" : "cut", cut->why.c_str());
    if (cut->is_damage) not_audited.push_back({source, cut->why});
  }
  if (options.output.json) {
    Json json = to_json(auditor, source, seconds, shown);
    if (cut) json[cut->is_damage ? "damaged" : "cut"] = cut->why;
    print_json(json);
  } else {
    print_text(options, auditor, seconds, shown);
  }
  if (!write_junit(reports_of(auditor, source, seconds), options.output, not_audited)) {
    return exit_code::kBadInput;
  }
  if (!not_audited.empty()) return exit_code::kBadInput;
  if (auditor.findings().size() > 0) return exit_code::kDisagreement;
  // An endpoint that nobody serves must not look like an engine that is right.
  return auditor.counts().messages > 0 ? exit_code::kAgree : exit_code::kCannotRun;
}

}  // namespace kvfence
