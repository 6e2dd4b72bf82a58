/// Checks MyPool against kvfence's reference: 100,000 random commands, or those of a scenario.
///
///   check_my_pool [--planted-bug] [FILE.kvs]
///
/// Exit codes: 0 both agree; 1 they do not, and my_pool_failure.kvs shows it; 2 bad input.

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include "my_pool.h"
#include "scenarios/check/check.h"

int bad_input(const kvfence::InputError& error) {
  std::fprintf(stderr, "%s\n", error.to_text().c_str());
  return 2;
}

int main(int argc, char** argv) {
  bool has_bug = false;
  kvfence::CheckOptions options;
  // MyPool has no events; every other setting of a pool is drawn.
  options.config_overrides = *kvfence::fields_of("enable_kv_cache_events=false");
  for (int k = 1; k < argc; ++k) {
    if (std::string(argv[k]) == "--planted-bug") {
      has_bug = true;
      continue;
    }
    std::ostringstream text;
    text << std::ifstream(argv[k]).rdbuf();
    auto scenario = kvfence::parse_document(text.str(), argv[k]);
    if (!scenario) return bad_input(scenario.error());
    options.scenario = *scenario;
    options.scenario_file = argv[k];
  }

  const auto make_pool = [&](const kvfence::BlockPoolConfig& config) {
    return MyPool(config, has_bug);
  };
  auto report = kvfence::check(make_pool, options, "MyPool");
  if (!report) return bad_input(report.error());
  if (report->divergence && !options.scenario) {
    std::ofstream("my_pool_failure.kvs") << kvfence::print(kvfence::failing_document(*report));
    report->reproduce =
        "check_my_pool my_pool_failure.kvs" + std::string(has_bug ? " --planted-bug" : "");
  }
  std::printf("%s", kvfence::to_text(*report).c_str());
  return report->passed() ? 0 : 1;
}
