# compile.sh -c SOURCE -o OBJECT: runs the source, with $OBJECT, and takes down what is compiled when.
echo "begins $(basename "$2") $(date +%s.%N)" >> "$FAKE_SOURCES/log"
OBJECT="$4" sh "$2" || exit 1
cp "$2" "$4" || exit 1
echo "ends $(basename "$2") $(date +%s.%N)" >> "$FAKE_SOURCES/log"
