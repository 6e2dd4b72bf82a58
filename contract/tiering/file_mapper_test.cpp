#include "contract/tiering/file_mapper.h"

#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace kvfence {
namespace {

FileMapperConfig config_of(const nlohmann::json& arguments) {
  FileMapperConfig config;
  config.root_dir = arguments.at("root_dir");
  config.model_name = arguments.at("model_name");
  config.hash_block_size = arguments.at("hash_block_size");
  config.gpu_blocks_per_file = arguments.at("gpu_blocks_per_file");
  config.tp_size = arguments.at("tp_size");
  config.pp_size = arguments.at("pp_size");
  config.pcp_size = arguments.at("pcp_size");
  config.dcp_size = arguments.at("dcp_size");
  config.rank = arguments.at("rank");
  config.dtype = arguments.at("dtype");
  config.inference_engine = arguments.value("inference_engine", config.inference_engine);
  config.parallel_agnostic = arguments.value("parallel_agnostic", false);
  for (const nlohmann::json& group : arguments.value("kv_cache_groups", nlohmann::json::array())) {
    config.kv_cache_groups.push_back({group.at("block_size"), group.at("layer_names")});
  }
  return config;
}

OffloadKey key_of(const std::string& hex) {
  OffloadKey key;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    key.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return key;
}

TEST(FileMapper, NamesAreUpstreams) {
  std::ifstream golden(KVFENCE_GOLDEN_DIR "/file_names_golden.txt");
  ASSERT_TRUE(golden) << "cannot read file_names_golden.txt";
  int num_configs = 0;
  int num_names = 0;
  for (std::string line; std::getline(golden, line);) {
    if (line.starts_with("#")) continue;
    const nlohmann::json expected = nlohmann::json::parse(line);
    const FileMapperConfig config = config_of(expected.at("arguments"));
    ASSERT_EQ(check_config(config), std::nullopt);
    const FileMapper mapper(config);
    EXPECT_EQ(mapper.base_path(), expected.at("base_path").get<std::string>());
    EXPECT_EQ(mapper.get_config_file_path(), expected.at("config_file_path").get<std::string>());
    EXPECT_EQ(mapper.get_run_config(), expected.at("run_config").get<std::string>());
    for (const auto& [key, name] : expected.at("file_names").items()) {
      EXPECT_EQ(mapper.get_file_name(key_of(key)), name.get<std::string>()) << "key " << key;
      ++num_names;
    }
    ++num_configs;
  }
  EXPECT_GE(num_configs, 18);
  EXPECT_GE(num_names, 60);
}

TEST(FileMapper, SaysWhatIsWrong) {
  FileMapperConfig config;
  EXPECT_EQ(check_config(config), "root_dir is empty, expected a folder");
  config.root_dir = "/cache";
  EXPECT_EQ(check_config(config), "model_name is empty, expected the name of a model");
  config.model_name = "\xff";
  EXPECT_EQ(check_config(config),
            "found bytes that are not UTF-8 in model_name, dtype, inference_engine or layer_names");
  config.model_name = std::string("a\0b", 3);
  EXPECT_EQ(check_config(config), "found a null byte in a path, expected none");
  config.model_name = "model";
  EXPECT_EQ(check_config(config), std::nullopt);
}

}  // namespace
}  // namespace kvfence
