# Completion for bash: `nodepulse` itself prints the words that can follow.
_nodepulse() {
    local line
    local -a words=()
    while IFS= read -r line; do
        words+=("${line%%$'\t'*}")
    done < <("${COMP_WORDS[0]}" __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    # After `=`, which separates words.
    local current="${COMP_WORDS[COMP_CWORD]#=}"
    case "${words[0]-}" in
        :file)
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$current")
            ;;
        :directory)
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -d -- "$current")
            ;;
        *) COMPREPLY=("${words[@]}") ;;
    esac
}
complete -F _nodepulse nodepulse
