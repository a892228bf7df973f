#include "framework/distributed/nccl_settings.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "tests/support/seed.h"
#include "tests/support/temporary_directory.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class NcclSettingsTest : public ::testing::Test {
 protected:
  fs::path file(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }

  TemporaryDirectory folder_;
};

TEST_F(NcclSettingsTest, TheEnvironmentGoesBeforeFilesAndTheFirstFileBeforeTheSecond) {
  const fs::path own = file("own", "# mine\nNCCL_P2P_LEVEL=PXB\nNCCL_SHM_DISABLE=1\nNCCL_DEBUG=INFO=x\n");
  const fs::path global = file("global", "NCCL_SHM_DISABLE=0\nNCCL_ALGO=Ring");
  const NcclSettings settings({"NCCL_P2P_LEVEL=SYS", "PATH=/bin", "NCCL_IB_HCA="}, {own, folder_ / "none", global});
  ASSERT_EQ(settings.all().size(), 4u);
  EXPECT_EQ(settings.find("NCCL_P2P_LEVEL")->value, "SYS");
  EXPECT_EQ(settings.find("NCCL_P2P_LEVEL")->source, "the environment");
  EXPECT_EQ(settings.find("NCCL_SHM_DISABLE")->value, "1");
  EXPECT_EQ(settings.find("NCCL_SHM_DISABLE")->source, own.string());
  EXPECT_EQ(settings.find("NCCL_DEBUG")->value, "INFO=x");
  EXPECT_EQ(settings.find("NCCL_ALGO")->source, global.string());
  EXPECT_FALSE(settings.find("NCCL_IB_HCA"));
  EXPECT_EQ(settings.files(), (std::vector<fs::path>{own, global}));
}

TEST_F(NcclSettingsTest, LinesAreReadAsNcclReadsThem) {
  // A space is part of the name or the value; a carriage return part of the value; a comment needs the first column.
  const fs::path odd =
      file("odd", std::string(" NCCL_A=1\nNCCL_B =2\nNCCL_C= 3\nNCCL_D=4\r\n #NCCL_E=5\nNCCL_F\n=6\n") + "NCCL_G=7" +
                      std::string(1, '\0') + "8\n" + "NCCL_H=" + std::string(5000, 'h'));
  const NcclSettings settings({}, {odd});
  EXPECT_FALSE(settings.find("NCCL_A"));
  EXPECT_FALSE(settings.find("NCCL_B"));
  EXPECT_EQ(settings.find("NCCL_B ")->value, "2");
  EXPECT_EQ(settings.find("NCCL_C")->value, " 3");
  EXPECT_EQ(settings.find("NCCL_D")->value, "4\r");
  EXPECT_FALSE(settings.find("NCCL_E"));
  EXPECT_FALSE(settings.find("NCCL_F"));
  EXPECT_EQ(settings.find("NCCL_G")->value, "7");
  EXPECT_EQ(settings.find("NCCL_H")->value.size(), 1023u);
}

TEST_F(NcclSettingsTest, AnyBytesAreSurvived) {
  std::mt19937 random(static_cast<unsigned>(testing::test_seed()));
  const std::string alphabet = std::string("NCCL_P2P=10#\n\r\t \xff\x80=\n") + '\0';
  for (int i = 0; i < 300; ++i) {
    std::string text;
    for (std::size_t length = random() % 400; length > 0; --length) text += alphabet[random() % alphabet.size()];
    const NcclSettings settings({}, {file("noise", text)});
    for (const NcclSetting& setting : settings.all()) {
      EXPECT_TRUE(setting.name.starts_with("NCCL_"));
      EXPECT_FALSE(setting.value.empty());
    }
  }
  // What is no file holds no settings.
  EXPECT_TRUE(NcclSettings({}, {folder_.path(), folder_ / "none", "/dev/null"}).all().empty());
}

TEST_F(NcclSettingsTest, TheConfFileOfTheEnvironmentStandsForTheOneAtHome) {
  const fs::path chosen = file("chosen", "NCCL_NVLS_ENABLE=1\n");
  const NcclSettings settings({"NCCL_CONF_FILE=" + chosen.string()});
  ASSERT_FALSE(settings.files().empty());
  EXPECT_EQ(settings.files().front(), chosen);
  EXPECT_EQ(settings.find("NCCL_NVLS_ENABLE")->source, chosen.string());
}

TEST_F(NcclSettingsTest, MulticastIsTheUsersOrOff) {
  EXPECT_EQ(NcclSettings({}, {}).nvls().value, "0");
  EXPECT_EQ(NcclSettings({"NCCL_NVLS_ENABLE="}, {}).nvls().value, "0");  // empty means automatic to NCCL
  EXPECT_EQ(NcclSettings({"NCCL_NVLS_ENABLE=2"}, {}).nvls().value, "2");
  EXPECT_EQ(NcclSettings({}, {file("conf", "NCCL_NVLS_ENABLE=1\n")}).nvls().value, "1");
}

}  // namespace
}  // namespace lockstep
