// Which rank this process is, told by whoever started it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace lockstep {

enum class Launcher : std::uint8_t { none, lockstep, torchrun, open_mpi, mpich, slurm };

struct Environment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;  // among the ranks of this host
  int local_world_size = 1;
  std::string master_addr = "127.0.0.1";  // the host of rank 0
  int store_port = 0;                     // where rank 0 hosts the store
  int store_fd = -1;                      // rank 0 under `--ranks`: a socket that already listens there; else -1
  Launcher launcher = Launcher::none;

  bool single_host() const { return local_world_size == world_size; }
};

// Used where nothing names a port: no LOCKSTEP_PORT, no MASTER_PORT, no SLURM job id.
inline constexpr int kDefaultStorePort = 29555;

// The value of a variable, empty where it is not set.
using EnvironmentLookup = std::function<std::optional<std::string>(const char* name)>;
std::optional<std::string> process_environment(const char* name);

const char* launcher_name(Launcher launcher);

// LOCKSTEP_PORT, else MASTER_PORT, plus 1 where TORCHELASTIC_USE_AGENT_STORE is True (the agent of torchrun itself
// listens on MASTER_PORT); empty where neither is set.
std::optional<int> named_store_port(const EnvironmentLookup& lookup = process_environment);

// Reads what one of these set; one process without any is rank 0 of 1:
//   lockstep --ranks, torchrun   RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
//   mpirun of Open MPI           OMPI_COMM_WORLD_RANK _SIZE _LOCAL_RANK _LOCAL_SIZE
//   mpiexec of MPICH, Intel MPI  PMI_RANK PMI_SIZE MPI_LOCALRANKID MPI_LOCALNRANKS
//   srun                         SLURM_PROCID SLURM_NTASKS SLURM_LOCALID SLURM_STEP_ID SLURM_*NODELIST
//   SLURM_*TASKS_PER_NODE
// A batch script or an interactive SLURM shell is no launch. Under srun one of the others may run: the inner one rules.
// Host of rank 0: MASTER_ADDR, else this host where all ranks are on it, else the first host of the SLURM node list.
// Port of the store: named_store_port, else 15000 + the last four digits of SLURM_JOB_ID, else kDefaultStorePort.
// requested_ranks: the user's --ranks; under a launcher it must be the world size (without one it is not looked at).
// Throws std::invalid_argument naming the variables and their values: not a number, out of range, a set of which a part
// is missing, two launchers that disagree.
Environment detect_environment(const EnvironmentLookup& lookup = process_environment,
                               std::optional<int> requested_ranks = std::nullopt);

}  // namespace lockstep
